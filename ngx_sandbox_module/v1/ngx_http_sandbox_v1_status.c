/*
 * "sandbox_api status": a page for an operator's browser.  It is one text
 * that loads nothing; its script asks the same location for JSON, and puts
 * what it gets into text nodes only.  The policy in its header lets no other
 * script run, so that even a mistake there would run nothing of a tenant's.
 */

#include "ngx_http_sandbox_v1.h"

#include "sandbox_sha256.h"


static ngx_int_t ngx_http_sandbox_v1_status(ngx_http_request_t *r);


ngx_http_sandbox_route_t  ngx_http_sandbox_status_routes[] = {

    { NGX_HTTP_GET, "",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "status",
      ngx_http_sandbox_v1_status, 0 },

    { NGX_HTTP_GET, "data",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "status_data",
      ngx_http_sandbox_v1_status_data, 0 },

    { NGX_HTTP_GET, "sessions",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "status_sessions",
      ngx_http_sandbox_v1_list, 0 },

    { 0, NULL, NGX_HTTP_SANDBOX_BODY_NONE, 0, NULL, NULL, 0 }
};


static const char  ngx_http_sandbox_v1_style[] =
    ":root{color-scheme:light dark}"
    "body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;"
    "margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.4rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .5rem}"
    "#state{color:#666}"
    "#state.bad{color:#c00;font-weight:bold}"
    "dl{display:flex;flex-wrap:wrap;gap:1rem;margin:1.5rem 0}"
    "dl div{border:1px solid #8886;border-radius:.4rem;padding:.5rem 1rem;"
    "min-width:7rem}"
    "dt{font-size:.8rem;opacity:.7}dd{margin:0;font-size:1.5rem;"
    "font-variant-numeric:tabular-nums}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8884;"
    "overflow-wrap:break-word}"
    "td.id,td.any{overflow-wrap:anywhere}td{vertical-align:top}"
    "th{font-size:.8rem;opacity:.7;font-weight:normal}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}"
    "td.id{font-family:ui-monospace,monospace;font-size:.85rem}"
    ".none{opacity:.6}";

static const char  ngx_http_sandbox_v1_body[] =
    "<h1>Sandboxes</h1><p id=\"state\" role=\"status\">loading</p>"
    "<dl id=\"totals\"></dl>"
    "<h2>Use of this node</h2><table><thead><tr><th>resource</th>"
    "<th class=\"n\">promised</th><th class=\"n\">limit</th></tr></thead>"
    "<tbody id=\"use\"></tbody></table>"
    "<h2>Refusals by quotas</h2><table><thead><tr><th>scope</th>"
    "<th>resource</th><th class=\"n\">count</th></tr></thead>"
    "<tbody id=\"refusals\"></tbody></table>"
    "<h2>Sessions <small id=\"shown\"></small></h2><table><thead><tr>"
    "<th>session</th><th>organization</th><th>user</th><th>template</th>"
    "<th>status</th><th>metadata</th>"
    "<th class=\"n\">memory limit</th><th>expires</th></tr></thead>"
    "<tbody id=\"sessions\"></tbody></table>";

static const char  ngx_http_sandbox_v1_script[] =
    "'use strict';"
    "const at=location.pathname.replace(/\\/*$/,'/');"
    "const $=id=>document.getElementById(id);"
    "function el(tag,text,cls){const e=document.createElement(tag);"
    "e.textContent=text;if(cls)e.className=cls;return e}"
    "function size(n){if(n===null||n===undefined)return 'none';"
    "const u=['B','KB','MB','GB','TB','PB'];let i=0;"
    "while(n>=1024&&i<5){n/=1024;i++}"
    "return (i?n.toFixed(1):n)+' '+u[i]}"
    "function amount(k,n){return k==='memory'||k==='disk'?size(n)"
    ":n===null?'none':String(n)}"
    "function rows(id,list,cells,none){const b=$(id);"
    "b.replaceChildren(...list.map(x=>{const tr=document.createElement('tr');"
    "tr.append(...cells(x));return tr}));"
    "if(!list.length){const tr=document.createElement('tr');"
    "const td=el('td',none,'none');td.colSpan=8;tr.append(td);b.append(tr)}}"
    "async function get(what){const r=await fetch(at+what,"
    "{cache:'no-store'});"
    "if(!r.ok)throw new Error(what+': status '+r.status);return r.json()}"
    "function totals(d){const t=Object.entries(d.sessions)"
    ".map(([k,n])=>[k,n]);t.push(['commands',d.used.commands],"
    "['broker restarts',d.restarts]);"
    "$('totals').replaceChildren(...t.map(([k,n])=>{"
    "const e=document.createElement('div');"
    "e.append(el('dt',k),el('dd',n));return e}))}"
    "async function look(){const s=$('state');try{"
    "const [d,l]=await Promise.all([get('data'),get('sessions?limit=100')]);"
    "if(!d.broker)throw new Error('the broker does not answer');"
    "totals(d);"
    "rows('use',Object.keys(d.used),k=>[el('td',k),"
    "el('td',amount(k,d.used[k]),'n'),el('td',amount(k,d.limits[k]),'n')]);"
    "rows('refusals',d.refusals,x=>[el('td',x.scope),el('td',x.resource),"
    "el('td',x.count,'n')],'none so far');"
    "rows('sessions',l.sessions,x=>[el('td',x.session_id,'id'),"
    "el('td',x.tenant_id),el('td',x.user_id),el('td',x.template),"
    "el('td',x.status),"
    "el('td',Object.entries(x.metadata||{}).map(([k,v])=>k+'='+v)"
    ".join(', '),'any'),"
    "el('td',size(x.resources&&x.resources.memory),'n'),"
    "el('td',x.expires_at)],'none');"
    "$('shown').textContent=l.next_cursor?'(the newest 100)':'';"
    "s.textContent='version '+d.version+', '+(d.draining?'draining, ':'')"
    "+new Date().toLocaleTimeString();s.className=d.draining?'bad':''}"
    "catch(e){s.textContent=e.message;s.className='bad'}"
    "setTimeout(look,document.hidden?15000:2000)}"
    "look();";


/* "'sha256-...'" */

static u_char *
ngx_http_sandbox_v1_status_hash(u_char *p, const char *text, size_t len)
{
    uint8_t       digest[SBX_SHA256_SIZE];
    ngx_str_t     from, to;
    sbx_sha256_t  s;

    sbx_sha256_init(&s);
    sbx_sha256_update(&s, text, len);
    sbx_sha256_final(&s, digest);

    from.data = digest;
    from.len = SBX_SHA256_SIZE;

    p = ngx_cpymem(p, "'sha256-", sizeof("'sha256-") - 1);
    to.data = p;
    ngx_encode_base64(&to, &from);
    p += to.len;
    *p++ = '\'';

    return p;
}


static ngx_int_t
ngx_http_sandbox_v1_status_headers(ngx_http_request_t *r)
{
    u_char      *p;
    ngx_str_t    value;
    ngx_uint_t   i;

    static const struct {
        const char  *name;
        ngx_str_t    value;
    } plain[] = {
        { "X-Content-Type-Options", ngx_string("nosniff") },
        { "Referrer-Policy", ngx_string("no-referrer") },
        { "X-Frame-Options", ngx_string("DENY") }
    };

    value.data = ngx_pnalloc(r->pool, 512);

    if (value.data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(value.data, "default-src 'none'; connect-src 'self'; "
                    "img-src data:; "
                    "base-uri 'none'; form-action 'none'; "
                    "frame-ancestors 'none'; script-src ");
    p = ngx_http_sandbox_v1_status_hash(p, ngx_http_sandbox_v1_script,
                                     sizeof(ngx_http_sandbox_v1_script) - 1);
    p = ngx_sprintf(p, "; style-src ");
    p = ngx_http_sandbox_v1_status_hash(p, ngx_http_sandbox_v1_style,
                                      sizeof(ngx_http_sandbox_v1_style) - 1);
    value.len = p - value.data;

    if (ngx_http_sandbox_add_header(r, "Content-Security-Policy", &value)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < sbx_nelts(plain); i++) {
        value = plain[i].value;

        if (ngx_http_sandbox_add_header(r, plain[i].name, &value) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_v1_status(ngx_http_request_t *r)
{
    ngx_http_sandbox_json_t  j;

    if (ngx_http_sandbox_v1_status_headers(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j,
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width\">"
        "<link rel=\"icon\" href=\"data:,\"><title>Sandboxes</title><style>");
    ngx_http_sandbox_json_raw(&j, ngx_http_sandbox_v1_style);
    ngx_http_sandbox_json_raw(&j, "</style></head><body>");
    ngx_http_sandbox_json_raw(&j, ngx_http_sandbox_v1_body);
    ngx_http_sandbox_json_raw(&j, "<script>");
    ngx_http_sandbox_json_raw(&j, ngx_http_sandbox_v1_script);
    ngx_http_sandbox_json_raw(&j, "</script></body></html>\n");

    return ngx_http_sandbox_json_send_as(r, NGX_HTTP_OK,
                                         "text/html; charset=utf-8", &j);
}
