#include "init.h"


int
main(void)
{
    return sbx_init_main();
}
