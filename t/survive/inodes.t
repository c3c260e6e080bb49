#!/usr/bin/perl

# A disk without inodes, with the state or with the logs: what has to be written is
# refused until there is room, what is written already goes on, and nobody
# waits for a log.  (Disks of sessions: t/storage.t, t/limits-files.t.)
#
# SANDBOX_TEST_LONG=1 runs a thousand commands meanwhile, whose numbers are
# then used up.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use SandboxTest::Full;

story(inodes => 1);
