# The main module of the kernel, whose names are those of the cells.

import sys

sys.path.insert(0, __file__.rpartition('/')[0])

import sandbox_kernel.core

sandbox_kernel.core.main()
