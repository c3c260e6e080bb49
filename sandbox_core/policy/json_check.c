/*
 * Whether a stranger's text may stand as a value in JSON of our own.  It may
 * be long, and comes in pieces: each is looked at once, and nothing of it is
 * kept but where in the grammar it ends.
 */

#include "json.h"

#include <string.h>


#define SBX_JSON_CHECK_LARGEST   309      /* digits of the largest double */


/* What comes next. */

typedef enum {
    SBX_JSON_CHECK_VALUE,
    SBX_JSON_CHECK_FIRST,         /* of an array: a value, or its end */
    SBX_JSON_CHECK_MEMBER,        /* the first of an object, or its end */
    SBX_JSON_CHECK_NAME,
    SBX_JSON_CHECK_COLON,
    SBX_JSON_CHECK_AFTER,         /* a value: what it is in goes on, or ends */
    SBX_JSON_CHECK_STRING,
    SBX_JSON_CHECK_UTF8,          /* .left bytes of a character */
    SBX_JSON_CHECK_ESCAPE,
    SBX_JSON_CHECK_HEX,           /* .left digits */
    SBX_JSON_CHECK_LOW,           /* the backslash of a pair's second half */
    SBX_JSON_CHECK_LOW_U,
    SBX_JSON_CHECK_WORD,          /* the rest of true, false, null */
    SBX_JSON_CHECK_MINUS,
    SBX_JSON_CHECK_ZERO,
    SBX_JSON_CHECK_DIGITS,
    SBX_JSON_CHECK_POINT,
    SBX_JSON_CHECK_FRACTION,
    SBX_JSON_CHECK_E,
    SBX_JSON_CHECK_SIGN,
    SBX_JSON_CHECK_EXPONENT,
    SBX_JSON_CHECK_BAD
} sbx_json_check_state_t;


/* The first digits of the largest double: what follows them makes none that
 * is rounded up to more. */

static const char  sbx_json_check_largest[] = "17976931348623157";


static sbx_json_check_state_t sbx_json_check_value(sbx_json_check_t *c,
    uint8_t b);
static sbx_json_check_state_t sbx_json_check_open(sbx_json_check_t *c,
    uint64_t object);
static sbx_json_check_state_t sbx_json_check_name(sbx_json_check_t *c,
    uint8_t b);
static sbx_json_check_state_t sbx_json_check_after(sbx_json_check_t *c,
    uint8_t b);
static sbx_json_check_state_t sbx_json_check_string(sbx_json_check_t *c,
    uint8_t b);
static sbx_json_check_state_t sbx_json_check_utf8(sbx_json_check_t *c,
    uint8_t b);
static sbx_json_check_state_t sbx_json_check_escape(sbx_json_check_t *c,
    uint8_t b);
static sbx_json_check_state_t sbx_json_check_hex(sbx_json_check_t *c,
    uint8_t b);
static sbx_json_check_state_t sbx_json_check_word(sbx_json_check_t *c,
    uint8_t b);
static sbx_json_check_state_t sbx_json_check_number(sbx_json_check_t *c,
    uint8_t b);
static sbx_json_check_state_t sbx_json_check_digits(sbx_json_check_t *c,
    uint8_t b, sbx_json_check_state_t state);
static sbx_json_check_state_t sbx_json_check_exponent(sbx_json_check_t *c,
    uint8_t b);
static int sbx_json_check_range(const sbx_json_check_t *c);
static sbx_json_check_state_t sbx_json_check_byte(sbx_json_check_t *c,
    uint8_t b);
static int sbx_json_check_blank(uint8_t b);
static int sbx_json_check_digit(uint8_t b);


void
sbx_json_check_begin(sbx_json_check_t *c)
{
    memset(c, 0, sizeof(sbx_json_check_t));
    c->state = SBX_JSON_CHECK_VALUE;
}


void
sbx_json_check_piece(sbx_json_check_t *c, const void *text, size_t size)
{
    size_t          i;
    const uint8_t  *s;

    s = text;

    for (i = 0; i < size && c->state != SBX_JSON_CHECK_BAD; i++) {

        /* most of a long text */

        if (c->state == SBX_JSON_CHECK_STRING && s[i] >= 0x20 && s[i] < 0x80
            && s[i] != '"' && s[i] != '\\')
        {
            continue;
        }

        c->state = (uint8_t) sbx_json_check_byte(c, s[i]);
    }
}


int
sbx_json_check_end(const sbx_json_check_t *c)
{
    if (c->depth != 0) {
        return -1;
    }

    switch ((sbx_json_check_state_t) c->state) {

    case SBX_JSON_CHECK_AFTER:
        return 0;

    case SBX_JSON_CHECK_ZERO:
    case SBX_JSON_CHECK_DIGITS:
    case SBX_JSON_CHECK_FRACTION:
    case SBX_JSON_CHECK_EXPONENT:
        return sbx_json_check_range(c) ? 0 : -1;

    default:
        return -1;
    }
}


int
sbx_json_check(const void *text, size_t size)
{
    sbx_json_check_t  c;

    sbx_json_check_begin(&c);
    sbx_json_check_piece(&c, text, size);

    return sbx_json_check_end(&c);
}


static sbx_json_check_state_t
sbx_json_check_byte(sbx_json_check_t *c, uint8_t b)
{
    sbx_json_check_state_t  state;

    state = (sbx_json_check_state_t) c->state;

    switch (state) {

    case SBX_JSON_CHECK_STRING:
        return sbx_json_check_string(c, b);

    case SBX_JSON_CHECK_UTF8:
        return sbx_json_check_utf8(c, b);

    case SBX_JSON_CHECK_ESCAPE:
        return sbx_json_check_escape(c, b);

    case SBX_JSON_CHECK_HEX:
        return sbx_json_check_hex(c, b);

    case SBX_JSON_CHECK_LOW:
        return (b == '\\') ? SBX_JSON_CHECK_LOW_U : SBX_JSON_CHECK_BAD;

    case SBX_JSON_CHECK_LOW_U:
        c->left = 4;
        return (b == 'u') ? SBX_JSON_CHECK_HEX : SBX_JSON_CHECK_BAD;

    case SBX_JSON_CHECK_WORD:
        return sbx_json_check_word(c, b);

    case SBX_JSON_CHECK_MINUS:
    case SBX_JSON_CHECK_ZERO:
    case SBX_JSON_CHECK_DIGITS:
    case SBX_JSON_CHECK_POINT:
    case SBX_JSON_CHECK_FRACTION:
    case SBX_JSON_CHECK_E:
    case SBX_JSON_CHECK_SIGN:
    case SBX_JSON_CHECK_EXPONENT:
        return sbx_json_check_number(c, b);

    case SBX_JSON_CHECK_VALUE:
    case SBX_JSON_CHECK_FIRST:
    case SBX_JSON_CHECK_MEMBER:
    case SBX_JSON_CHECK_NAME:
    case SBX_JSON_CHECK_COLON:
    case SBX_JSON_CHECK_AFTER:
    case SBX_JSON_CHECK_BAD:
        break;
    }

    if (sbx_json_check_blank(b)) {
        return state;
    }

    switch (state) {

    case SBX_JSON_CHECK_FIRST:
        return (b == ']') ? sbx_json_check_after(c, b)
                          : sbx_json_check_value(c, b);

    case SBX_JSON_CHECK_MEMBER:
        return (b == '}') ? sbx_json_check_after(c, b)
                          : sbx_json_check_name(c, b);

    case SBX_JSON_CHECK_NAME:
        return sbx_json_check_name(c, b);

    case SBX_JSON_CHECK_COLON:
        return (b == ':') ? SBX_JSON_CHECK_VALUE : SBX_JSON_CHECK_BAD;

    case SBX_JSON_CHECK_AFTER:
        return sbx_json_check_after(c, b);

    default:
        return sbx_json_check_value(c, b);
    }
}


static sbx_json_check_state_t
sbx_json_check_value(sbx_json_check_t *c, uint8_t b)
{
    c->digits = 0;
    c->whole = 0;
    c->exponent = 0;
    c->minus = 0;
    c->order = 0;

    switch (b) {

    case '{':
        return sbx_json_check_open(c, 1);

    case '[':
        return sbx_json_check_open(c, 0);

    case '"':
        c->name = 0;
        return SBX_JSON_CHECK_STRING;

    case '-':
        return SBX_JSON_CHECK_MINUS;

    case '0':
        return sbx_json_check_digits(c, b, SBX_JSON_CHECK_ZERO);

    case 't':
        c->word = "rue";
        return SBX_JSON_CHECK_WORD;

    case 'f':
        c->word = "alse";
        return SBX_JSON_CHECK_WORD;

    case 'n':
        c->word = "ull";
        return SBX_JSON_CHECK_WORD;

    default:
        return sbx_json_check_digit(b)
               ? sbx_json_check_digits(c, b, SBX_JSON_CHECK_DIGITS)
               : SBX_JSON_CHECK_BAD;
    }
}


static sbx_json_check_state_t
sbx_json_check_open(sbx_json_check_t *c, uint64_t object)
{
    if (c->depth == SBX_JSON_CHECK_DEPTH) {
        return SBX_JSON_CHECK_BAD;
    }

    c->depth++;
    c->objects = c->objects << 1 | object;

    return object ? SBX_JSON_CHECK_MEMBER : SBX_JSON_CHECK_FIRST;
}


static sbx_json_check_state_t
sbx_json_check_name(sbx_json_check_t *c, uint8_t b)
{
    c->name = 1;

    return (b == '"') ? SBX_JSON_CHECK_STRING : SBX_JSON_CHECK_BAD;
}


static sbx_json_check_state_t
sbx_json_check_after(sbx_json_check_t *c, uint8_t b)
{
    uint64_t  object;

    if (c->depth == 0) {
        return SBX_JSON_CHECK_BAD;
    }

    object = c->objects & 1;

    if (b == ',') {
        return object ? SBX_JSON_CHECK_NAME : SBX_JSON_CHECK_VALUE;
    }

    if (b != (object ? '}' : ']')) {
        return SBX_JSON_CHECK_BAD;
    }

    c->depth--;
    c->objects >>= 1;

    return SBX_JSON_CHECK_AFTER;
}


static sbx_json_check_state_t
sbx_json_check_string(sbx_json_check_t *c, uint8_t b)
{
    if (b == '"') {
        return c->name ? SBX_JSON_CHECK_COLON : SBX_JSON_CHECK_AFTER;
    }

    if (b == '\\') {
        c->pair = 0;
        return SBX_JSON_CHECK_ESCAPE;
    }

    if (b < 0x20) {
        return SBX_JSON_CHECK_BAD;
    }

    if (b < 0x80) {
        return SBX_JSON_CHECK_STRING;
    }

    if (b < 0xc2 || b > 0xf4) {
        return SBX_JSON_CHECK_BAD;
    }

    /* neither overlong, nor a surrogate, nor beyond the last character */

    c->left = (b >= 0xf0) ? 3 : (b >= 0xe0) ? 2 : 1;
    c->low = (b == 0xe0) ? 0xa0 : (b == 0xf0) ? 0x90 : 0x80;
    c->high = (b == 0xed) ? 0x9f : (b == 0xf4) ? 0x8f : 0xbf;

    return SBX_JSON_CHECK_UTF8;
}


static sbx_json_check_state_t
sbx_json_check_utf8(sbx_json_check_t *c, uint8_t b)
{
    if (b < c->low || b > c->high) {
        return SBX_JSON_CHECK_BAD;
    }

    c->low = 0x80;
    c->high = 0xbf;

    return (--c->left == 0) ? SBX_JSON_CHECK_STRING : SBX_JSON_CHECK_UTF8;
}


static sbx_json_check_state_t
sbx_json_check_escape(sbx_json_check_t *c, uint8_t b)
{
    if (b == 'u') {
        c->left = 4;
        return SBX_JSON_CHECK_HEX;
    }

    return (b != '\0' && strchr("\"\\/bfnrt", b) != NULL)
           ? SBX_JSON_CHECK_STRING : SBX_JSON_CHECK_BAD;
}


/* Half of a pair of surrogates is no character. */

static sbx_json_check_state_t
sbx_json_check_hex(sbx_json_check_t *c, uint8_t b)
{
    unsigned  digit;

    digit = sbx_json_check_digit(b) ? b - (unsigned) '0'
            : (b | 0x20) >= 'a' && (b | 0x20) <= 'f'
              ? (b | 0x20) - (unsigned) 'a' + 10 : 16;

    if (digit == 16) {
        return SBX_JSON_CHECK_BAD;
    }

    c->code = (uint16_t) (c->code << 4 | digit);

    if (--c->left != 0) {
        return SBX_JSON_CHECK_HEX;
    }

    if (c->pair) {
        c->pair = 0;
        return (c->code >= 0xdc00 && c->code <= 0xdfff)
               ? SBX_JSON_CHECK_STRING : SBX_JSON_CHECK_BAD;
    }

    if (c->code >= 0xd800 && c->code <= 0xdbff) {
        c->pair = 1;
        return SBX_JSON_CHECK_LOW;
    }

    return (c->code >= 0xdc00 && c->code <= 0xdfff) ? SBX_JSON_CHECK_BAD
                                                    : SBX_JSON_CHECK_STRING;
}


static sbx_json_check_state_t
sbx_json_check_word(sbx_json_check_t *c, uint8_t b)
{
    if (b != (uint8_t) *c->word) {
        return SBX_JSON_CHECK_BAD;
    }

    return (*++c->word == '\0') ? SBX_JSON_CHECK_AFTER : SBX_JSON_CHECK_WORD;
}


/* What ends a number is what comes after it. */

static sbx_json_check_state_t
sbx_json_check_number(sbx_json_check_t *c, uint8_t b)
{
    int  digit, e;

    digit = sbx_json_check_digit(b);
    e = (b == 'e' || b == 'E');

    switch ((sbx_json_check_state_t) c->state) {

    case SBX_JSON_CHECK_MINUS:
        return digit ? sbx_json_check_digits(c, b, (b == '0')
                                                   ? SBX_JSON_CHECK_ZERO
                                                   : SBX_JSON_CHECK_DIGITS)
                     : SBX_JSON_CHECK_BAD;

    case SBX_JSON_CHECK_POINT:
        return digit ? sbx_json_check_digits(c, b, SBX_JSON_CHECK_FRACTION)
                     : SBX_JSON_CHECK_BAD;

    case SBX_JSON_CHECK_E:
        if (b == '+' || b == '-') {
            c->minus = (b == '-');
            return SBX_JSON_CHECK_SIGN;
        }

        return digit ? sbx_json_check_exponent(c, b) : SBX_JSON_CHECK_BAD;

    case SBX_JSON_CHECK_SIGN:
        return digit ? sbx_json_check_exponent(c, b) : SBX_JSON_CHECK_BAD;

    case SBX_JSON_CHECK_DIGITS:
        if (digit) {
            return sbx_json_check_digits(c, b, SBX_JSON_CHECK_DIGITS);
        }

        /* fall through */

    case SBX_JSON_CHECK_ZERO:
        if (b == '.' || e) {
            return e ? SBX_JSON_CHECK_E : SBX_JSON_CHECK_POINT;
        }

        break;

    case SBX_JSON_CHECK_FRACTION:
        if (digit) {
            return sbx_json_check_digits(c, b, SBX_JSON_CHECK_FRACTION);
        }

        if (e) {
            return SBX_JSON_CHECK_E;
        }

        break;

    default:
        if (digit) {
            return sbx_json_check_exponent(c, b);
        }
    }

    if (!sbx_json_check_range(c)) {
        return SBX_JSON_CHECK_BAD;
    }

    return sbx_json_check_blank(b) ? SBX_JSON_CHECK_AFTER
                                   : sbx_json_check_after(c, b);
}


/* Both counts stay below what their types hold. */

static sbx_json_check_state_t
sbx_json_check_digits(sbx_json_check_t *c, uint8_t b,
    sbx_json_check_state_t state)
{
    if (c->digits == SBX_JSON_NUMBER_DIGITS) {
        return SBX_JSON_CHECK_BAD;
    }

    if (c->order == 0 && c->digits < sizeof(sbx_json_check_largest) - 1) {
        c->order = (int8_t) (b - (uint8_t) sbx_json_check_largest[c->digits]);
    }

    c->digits++;
    c->whole += (state != SBX_JSON_CHECK_FRACTION);

    return state;
}


static sbx_json_check_state_t
sbx_json_check_exponent(sbx_json_check_t *c, uint8_t b)
{
    c->exponent = (uint16_t) (c->exponent * 10 + (b - (unsigned) '0'));

    return (c->exponent > SBX_JSON_NUMBER_EXPONENT) ? SBX_JSON_CHECK_BAD
                                                   : SBX_JSON_CHECK_EXPONENT;
}


/* Whether it is no more than the largest double. */

static int
sbx_json_check_range(const sbx_json_check_t *c)
{
    int  power;

    power = c->whole + (c->minus ? -c->exponent : c->exponent);

    return power < SBX_JSON_CHECK_LARGEST
           || (power == SBX_JSON_CHECK_LARGEST && c->order <= 0);
}


static int
sbx_json_check_blank(uint8_t b)
{
    return b == ' ' || b == '\n' || b == '\t' || b == '\r';
}


static int
sbx_json_check_digit(uint8_t b)
{
    return b >= '0' && b <= '9';
}
