/*
 * Included before a source by the analysers alone: they do not look into
 * other sources, and sbx_error() always returns -1.
 */

#include "sandbox_error.h"

#define sbx_error(...)  ((sbx_error)(__VA_ARGS__), -1)
