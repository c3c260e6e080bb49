'use strict';

/*
 * What a cell is before V8 sees it.  A script can neither await at its top
 * nor import, and what it declares with let, const or class can never be
 * declared again.  So:
 *
 *   - top-level let, const and class become var: variables of the context,
 *   - a cell that awaits or imports statically becomes the body of an async
 *     function, its declarations assignments to variables of the context,
 *   - "import" in expressions becomes $$load, which resolves from the
 *     working directory.
 *
 * Edits keep lines, and columns where they can, so that errors point at what
 * was written.  Names are never moved: only acorn, which is part of node,
 * decides what is a declaration.
 */

let acorn = null;


function parser() {
    if (acorn === null) {
        try {
            acorn = require('internal/deps/acorn/acorn/dist/acorn');

        } catch {
            acorn = require('acorn');
        }
    }

    return acorn;
}


/* Cells with none of these words go to V8 as they are. */
const WORDS = /\b(?:let|const|class|await|import|export)\b/;


function parse(code) {
    return parser().parse(code, {
        ecmaVersion: 'latest',
        sourceType: 'script',
        allowAwaitOutsideFunction: true,
        allowImportExportEverywhere: true,
        allowHashBang: true,
    });
}


function isFunction(node) {
    return node.type === 'FunctionDeclaration'
           || node.type === 'FunctionExpression'
           || node.type === 'ArrowFunctionExpression';
}


function children(node, visit) {
    for (const key of Object.keys(node)) {
        const value = node[key];

        if (Array.isArray(value)) {
            for (const one of value) {
                if (one !== null && typeof one.type === 'string') {
                    visit(one, key);
                }
            }

        } else if (value !== null && typeof value === 'object'
                   && typeof value.type === 'string')
        {
            visit(value, key);
        }
    }
}


/* The names that a pattern binds. */
function bound(pattern, names) {
    switch (pattern.type) {

    case 'Identifier':
        names.add(pattern.name);
        break;

    case 'ObjectPattern':
        for (const p of pattern.properties) {
            bound(p.type === 'RestElement' ? p.argument : p.value, names);
        }
        break;

    case 'ArrayPattern':
        for (const p of pattern.elements) {
            if (p !== null) {
                bound(p, names);
            }
        }
        break;

    case 'AssignmentPattern':
        bound(pattern.left, names);
        break;

    case 'RestElement':
        bound(pattern.argument, names);
        break;
    }
}


class Cell {
    constructor(code, ast) {
        this.code = code;
        this.ast = ast;
        this.edits = [];
        this.names = new Set();
        this.functions = [];
        this.vars = [];             /* nested, of the cell's own scope */
        this.waits = false;
    }

    replace(start, end, text) {
        this.edits.push({ start, end, text, order: this.edits.length });
    }

    /* Blanks, but lines stay lines. */
    blank(start, end) {
        this.replace(start, end,
                     this.code.slice(start, end).replace(/[^\n]/g, ' '));
    }

    survey(node, inside, parent, key) {
        switch (node.type) {

        case 'AwaitExpression':
        case 'ImportDeclaration':
            this.waits ||= !inside;
            break;

        case 'ForOfStatement':
            this.waits ||= !inside && node.await;
            break;

        case 'ImportExpression':
        case 'MetaProperty':
            if (this.code.startsWith('import', node.start)) {
                this.replace(node.start, node.start + 6, '$$load');
            }
            break;

        case 'VariableDeclaration':
            if (!inside && node.kind === 'var' && parent !== this.ast) {
                this.vars.push({ node, head: key === 'init' || key === 'left' });
            }
            break;
        }

        inside ||= isFunction(node) || node.type === 'PropertyDefinition'
                   || node.type === 'StaticBlock';

        children(node, (child, name) => {
            this.survey(child, inside, node, name);
        });
    }

    declared(node) {
        for (const d of node.declarations) {
            bound(d.id, this.names);
        }
    }

    /* let without a value gives undefined, each time that it is run */
    reset(node) {
        if (node.kind === 'let') {
            for (const d of node.declarations) {
                if (d.init === null) {
                    this.replace(d.end, d.end, '=void 0');
                }
            }
        }
    }

    script() {
        for (const node of this.statements()) {
            if (node.type === 'VariableDeclaration') {
                this.declared(node);
                this.reset(node);

                if (node.kind === 'let') {
                    this.replace(node.start, node.start + 3, 'var');

                } else if (node.kind === 'const') {
                    this.replace(node.start, node.start + 5, 'var  ');
                }

            } else if (node.type === 'ClassDeclaration') {
                this.names.add(node.id.name);
                this.replace(node.start, node.start,
                             'var ' + node.id.name + '=');
                this.replace(node.end, node.end, ';');

            } else if (node.type === 'FunctionDeclaration') {
                this.names.add(node.id.name);
            }
        }

        return this.made('', '');
    }

    /* "let a = 1, b;" is "void(a = 1, b=void 0);" */
    assign(node) {
        const last = node.declarations[node.declarations.length - 1];

        this.declared(node);
        this.reset(node);
        this.replace(node.start, node.start + node.kind.length, 'void(');
        this.replace(last.end, last.end,
                     this.code[node.end - 1] === ';' ? ')' : ');');
    }

    imported(node) {
        const source = node.source.raw;
        const pairs = [], wanted = [];
        let   space = '';

        for (const s of node.specifiers) {
            this.names.add(s.local.name);

            if (s.type === 'ImportNamespaceSpecifier') {
                space = s.local.name + '=';
                continue;
            }

            const name = s.type === 'ImportDefaultSpecifier' ? 'default'
                         : s.imported.name ?? s.imported.value;

            pairs.push(JSON.stringify(name) + ':' + s.local.name);
            wanted.push(JSON.stringify(name));
        }

        const rest = this.code.slice(node.source.end, node.end);
        const with_ = /^\s*(with|assert)\s*(\{[^]*\})/.exec(rest);
        const options = with_ ? `,{${with_[1]}:${with_[2]}}` : '';
        const lines = this.code.slice(node.start, node.end).split('\n');

        this.replace(node.start, node.end,
                     'void(' + (pairs.length ? `{${pairs}}=` : '') + space
                     + `await $$load.pick(${source},[${wanted}]${options}));`
                     + '\n'.repeat(lines.length - 1));
    }

    body() {
        let last = null;

        for (const { node, head } of this.vars) {
            if (head) {
                this.declared(node);
                this.blank(node.start, node.start + 3);

            } else {
                this.assign(node);
            }
        }

        for (const node of this.statements()) {
            if (node.type !== 'EmptyStatement') {
                last = node;
            }

            switch (node.type) {

            case 'VariableDeclaration':
                this.assign(node);
                break;

            case 'ClassDeclaration':
                this.names.add(node.id.name);
                this.replace(node.start, node.start, node.id.name + '=');
                this.replace(node.end, node.end, ';');
                break;

            case 'FunctionDeclaration':
                this.names.add(node.id.name);
                this.functions.push(node.id.name);
                break;

            case 'ImportDeclaration':
                this.imported(node);
                break;
            }
        }

        if (last !== null && last.type === 'ExpressionStatement'
            && last.directive === undefined)
        {
            const semicolon = this.code[last.end - 1] === ';';

            this.replace(last.start, last.start, 'return (');
            this.replace(last.end - semicolon, last.end, ');');
        }

        const names = [ ...this.names ];
        const head = (names.length ? `var ${names};` : '')
                     + '(async()=>{'
                     + this.functions.map(f => `globalThis.${f}=${f};`)
                                     .join('');

        return this.made(head, '\n})()');
    }

    /* Those at the top, without "export" before them. */
    *statements() {
        for (const node of this.ast.body) {
            if (node.type === 'ExportNamedDeclaration') {
                if (node.declaration) {
                    this.blank(node.start, node.declaration.start);
                    yield node.declaration;

                } else if (node.source === null) {
                    this.blank(node.start, node.end);
                }

            } else if (node.type === 'ExportDefaultDeclaration') {
                const d = node.declaration;

                this.blank(node.start, d.start);

                if (d.id) {
                    yield d;
                }

            } else {
                yield node;
            }
        }
    }

    apply() {
        const out = [];
        let   at = 0;

        /* what is put in comes before what is replaced there */
        this.edits.sort((a, b) => a.start - b.start
                                  || (a.end > a.start) - (b.end > b.start)
                                  || a.order - b.order);

        for (const e of this.edits) {
            if (e.start < at) {             /* within what is replaced */
                continue;
            }

            out.push(this.code.slice(at, e.start), e.text);
            at = e.end;
        }

        out.push(this.code.slice(at));

        return out.join('');
    }

    made(head, tail) {
        return { code: head + this.apply() + tail, offset: -head.length,
                 edits: this.edits, names: [ ...this.names ],
                 waits: this.waits, error: null };
    }
}


/*
 * { code, offset, edits, names, waits }: the script, its first line's column
 * offset, what was edited, what it declares at its top, and whether its value
 * is a promise of its own.
 * error is acorn's, where it does not understand the cell: V8 decides then.
 */
function transform(code) {
    const as_is = { code, offset: 0, edits: [], names: [], waits: false,
                    error: null };
    let   ast;

    if (code.startsWith('#!')) {
        code = '//' + code.slice(2);
        as_is.code = code;
    }

    if (!WORDS.test(code)) {
        return as_is;
    }

    try {
        ast = parse(code);

    } catch (e) {
        as_is.error = e;
        return as_is;
    }

    const cell = new Cell(code, ast);

    cell.survey(ast, false, null, '');

    return cell.waits ? cell.body() : cell.script();
}


module.exports = { transform, prepare: parser };
