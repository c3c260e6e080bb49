/*
 * What targets share: must() is a property, whose line is told where it does
 * not hold.
 */

#ifndef SBX_FUZZ_H
#define SBX_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(is)                                                             \
    ((is) ? (void) 0                                                         \
          : ((void) fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #is),  \
             abort()))


#endif
