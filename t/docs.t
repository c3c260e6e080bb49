#!/usr/bin/perl

# The reference documents against the tables in the code that they describe:
# every directive with its context, every limit with its bounds, every error
# with its status and word, every variable; and nothing besides.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;

my $ROOT = $SandboxTest::ROOT;


sub source {
    my ($name) = @_;

    my $text = SandboxTest::slurp("$ROOT/$name");

    if (!defined $text) {
        plan(skip_all => "$name is not there");
    }

    return $text;
}


# The rows of a Markdown table whose first cell matches, as lists of cells.

sub rows {
    my ($text, $first) = @_;

    return grep { $_->[0] =~ $first }
           map { [ map { s/^\s+|\s+$//gr } split /(?<!\\)\|/, substr $_, 1 ] }
           grep { /^\|/ } split /\n/, $text;
}


subtest 'directives' => sub {
    my $code = source('ngx_sandbox_module/ngx_http_sandbox_module.c');
    my $text = source('docs/directives.md');

    my %context;

    while ($code =~ /\{ ngx_string\("(sandbox_\w+)"\),\s*([A-Z0-9_|\s]+),/g) {
        my ($name, $flags) = ($1, $2);
        my @where = map { $flags =~ /$_->[0]/ ? $_->[1] : () }
                    ([ NGX_HTTP_MAIN_CONF => 'http' ],
                     [ NGX_HTTP_SRV_CONF => 'server' ],
                     [ NGX_HTTP_LOC_CONF => 'location' ]);
        $context{$name} = join ', ', @where;
    }

    cmp_ok(scalar keys %context, '>', 10, 'are found in the code');

    my %summary = map { $_->[0] =~ /\[(\w+)\]/; ($1 => $_->[1]) }
                  rows($text, qr/^\[sandbox_/);
    is_deeply(\%summary, \%context, 'the summary has them all');

    for my $name (sort keys %context) {
        my ($section) = $text =~ /^## \Q$name\E\n(.*?)(?=^## |\z)/ms;
        my %row = map { $_->[0] => $_->[1] }
                  rows($section // '', qr/^(?:Syntax|Default|Context)$/);

        is($row{Context}, $context{$name}, "$name: context");
        like($row{Syntax}, qr/^`$name [^`]+;`$/, "$name: syntax");
        ok($row{Default}, "$name: default");
    }
};


# Where a word of a list is meant, those that the code takes.

subtest 'words of directives' => sub {
    my $code = source('ngx_sandbox_module/ngx_http_sandbox_conf.c');
    my $text = source('docs/directives.md');

    for my $case ([ sandbox_api => 'apis' ], [ sandbox_storage => 'storages' ])
    {
        my ($name, $table) = @$case;
        my ($list) = $code =~ /ngx_conf_enum_t\s+
                               ngx_http_sandbox_\Q$table\E\[\]\ =\ \{(.*?)^\};
                              /xms;
        my ($told) = $text =~ /^\| Syntax \| `\Q$name\E ([\w \\|]+)/m;

        is(join(' ', sort split / \\\| /, ($told // '') =~ s/ +\z//r),
           join(' ', sort(($list // 'none') =~ /ngx_string\("(\w+)"\)/g)),
           $name);
    }
};


subtest 'variables' => sub {
    my $code = source('ngx_sandbox_module/ngx_http_sandbox_variables.c');
    my @known = $code =~ /ngx_string\("(sandbox_\w+)"\)/g;
    my @told = map { $_->[0] =~ /\$(sandbox_\w+)/g }
               rows(source('docs/directives.md'), qr/\$sandbox_/);

    is("@{[ sort @told ]}", "@{[ sort @known ]}", 'are all told');
};


subtest 'limits' => sub {
    my $code = source('sandbox_core/policy/limits.c');
    # What the table in the code says, as the document writes it.

    my $value = sub {
        my ($s, $unit) = @_;

        return 'none' if $s =~ /SBX_UN(?:SET|LIMITED)/;
        return $s if $unit eq 'BYTES' && $s =~ s/ \* / /;
        return "$s byte" if $unit eq 'BYTES';

        $s =~ s/\bDAY\b/86400 * 1000/;
        $s =~ s/\bSECOND\b/1000/;
        my $n = 1;
        $n *= $_ for split / \* /, $s;

        return $unit =~ /MILLI|SECONDS/ ? $n / 1000 : $n;
    };

    my %want;

    while ($code =~ /\{\s*"(\w+)",\s*"(\w+)",\s*SBX_UNIT_(\w+),
                     \s*FIELD\(\w+\),\s*([^,]+),\s*([^,]+),
                     \s*([^,]+),\s*([^,]+),\s*[01]/gx)
    {
        my ($name, $json, $unit, @v) = ($1, $2, $3, $4, $5, $6, $7);

        $want{$name} = join ' | ', "`$json`",
                       map { $value->($_, $unit) } @v[0, 2, 3];
    }

    # The default of a file is the disk, which the table cannot say.

    $want{max_file_size} =~ s/none \|/the disk |/;

    # That of the disk follows the kind of storage.

    $want{disk} =~ s/none \|/1 GB, or half of the memory |/;

    my $text = source('docs/limits.md');
    my ($section) = $text =~ /^## Of a session\n(.*?)^## /ms;
    my %told = map { my @c = @$_; $c[0] =~ s/`//g;
                     ($c[0] => join ' | ', @c[1 .. 4]) }
               rows($section, qr/^`/);

    is_deeply(\%told, \%want, 'have the bounds of the code');
};


subtest 'options of sandboxctl run' => sub {
    my @known = sort map { /\{ "(--[\w-]+)", SBX_RUN_/g }
                     source('sandbox_core/tools/run.c');
    my ($section) = source('docs/library.md')
                    =~ /^## The command\n(.*?)^## /ms;
    my @told = sort map { $_->[0] =~ /(--[\w-]+)/ } rows($section, qr/^`--/);
    my ($manual) = source('docs/sandboxctl.8') =~ /^\.Sh RUN\n(.*?)^\.Sh /ms;
    my ($help) = source('sandbox_core/tools/sandboxctl.c')
                 =~ /\{ "run",(.*?)sbx_ctl_run_command \}/s;

    cmp_ok(scalar @known, '>', 20, 'are found in the code');
    is("@told", "@known", 'the document has them all');
    @told = sort map { "--$_" } $manual =~ /^\.It Fl -([\w-]+)/mg;
    is("@told", "@known", 'the manual page has them all');
    @told = sort $help =~ /"  (--[\w-]+)/g;
    is("@told", "@known", 'and so has --help');
};


subtest 'the tests of limits' => sub {
    my $text = source('docs/limits.md');
    my ($section) = $text =~ /^## How they are enforced.*?\n(.*?)^## /ms;
    my @lists = source('t/v2.t') =~ /^my \@(?:files|alone) = qw\((.*?)\)/msg;
    my %guest = map { ("t/$_" => 1) } map { split } @lists;
    my @rows = grep { @$_ == 5 } rows($section, qr/^(?:`|refusals)/);
    my (%subtests, %shown);

    cmp_ok(scalar @rows, '>=', 12, 'each limit has a row');

    for my $row (@rows) {
        my ($limit, @cells) = @$row;
        my @means = ('cgroup v2', 'cgroup v1', 'rlimit', 'other');

        for my $cell (@cells) {
            my $means = shift @means;
            my @tests = $cell =~ /`(t\/[\w\/-]+\.[ct])`((?:,? "[^"]+")*)/g;

            next if $cell eq "\x{e2}\x{80}\x{94}";
            ok(@tests > 0, "$limit, $means: has a test");

            while (my ($file, $names) = splice @tests, 0, 2) {
                $subtests{$file} //= { map { s/\\'/'/gr => 1 }
                    source($file) =~ /^(?:subtest|whole) '(.+)' => sub/mg };

                ok($guest{$file}, "$limit: $file runs in the guest")
                    if $means eq 'cgroup v2';
                ok($subtests{$file}{$_}, "$limit: $file \"$_\"")
                    for $names =~ /"([^"]+)"/g;
                $shown{$file} = 1;
            }
        }
    }

    my @files = map { s{.*/}{t/}r } glob "$ROOT/t/limits-*.t";
    is(join(' ', grep { !$shown{$_} } @files), '', 'each file is named');
};


subtest 'errors' => sub {
    my $code = source('ngx_sandbox_module/ngx_http_sandbox_problem.c');
    my $text = source('docs/errors.md');
    my (%want, %reserved);

    while ($code =~ /\{ NGX_HTTP_SANDBOX_\w+, (\d+), "(E\d+)",\s*"(\w+)",/g) {
        $want{$2} = "$1 `$3`";
    }

    my %told = map { $_->[0] => "$_->[1] $_->[2]" } rows($text, qr/^E\d/);
    my ($line) = $text =~ /^((?:E\d{4}[, \nand]+)+(?:is|are) reserved)/m;

    $reserved{$_} = 1 for ($line // '') =~ /E\d{4}/g;

    is_deeply([ sort keys %told, keys %reserved ], [ sort keys %want ],
              'are all told, or reserved');

    for my $name (sort keys %told) {
        is($told{$name}, $want{$name}, $name);
    }
};


# Routes of all APIs, from their tables.

subtest 'names of operations' => sub {
    my %known;

    for my $file (glob "$ROOT/ngx_sandbox_module/v1/*.c") {
        my $code = SandboxTest::slurp($file);

        for my $table ($code =~ /^ngx_http_sandbox_route_t .*?^\};/gms) {
            $known{$1} = 1
                while $table =~ /NGX_HTTP_SANDBOX_BODY_\w+,\s*[\w|]+,
                                 \s*"(\w+)"/gx;
        }
    }

    cmp_ok(scalar keys %known, '>', 40, 'are found in the code');

    my ($row) = rows(source('docs/directives.md'), qr/^`\$sandbox_op`/);
    my %told = map { $_ => 1 } $row->[1] =~ /`(\w+)`/g;

    is("@{[ sort keys %told ]}", "@{[ sort keys %known ]}", 'are all told');
};


subtest 'the log format' => sub {
    my @known = source('ngx_sandbox_module/ngx_http_sandbox_variables.c')
                =~ /ngx_string\("(sandbox_\w+)"\)/g;
    my @used = source('conf/sandbox-log.conf') =~ /\$(sandbox_\w+)/g;

    # That one is for error pages.

    @known = grep { $_ ne 'sandbox_request_id' } @known;

    is("@{[ sort @used ]}", "@{[ sort @known ]}", 'has every variable once');
};


subtest 'fields of the audit log' => sub {
    my %known = map { $_ => 1 }
                source('ngx_sandbox_module/ngx_http_sandbox_audit.c')
                =~ /\\"(\w+)\\":/g;
    my $text = source('docs/audit.md');
    my @told = map { $_->[0] =~ /`(\w+)`/g } rows($text, qr/^`/);

    cmp_ok(scalar keys %known, '>', 15, 'are found in the code');
    is("@{[ sort @told ]}", "@{[ sort keys %known ]}", 'are all told');

    my ($sample) = $text =~ /^```json\n(.*?)^```/ms;
    my @shown = $sample =~ /"(\w+)":/g;
    is(join(' ', grep { !$known{$_} } @shown), '', 'the sample has no other');
};


subtest 'checks of the doctor' => sub {
    my $code = source('sandbox_core/isolate/doctor.c')
               . source('sandbox_core/isolate/doctor_host.c');
    my %known;

    while ($code =~ /\b(CHECK|LAYER|SYSCTL)\("(\w+)",\s*([01])?/g) {
        $known{$2} //= $1 ne 'SYSCTL' && $3 ? 'yes' : '';
    }

    my ($section) = source('docs/operations.md')
                    =~ /^## What doctor looks at\n(.*?)(?=^## |\z)/ms;
    my %told;

    for my $row (rows($section // '', qr/^`/)) {
        my $required = $row->[1] =~ /^(?:yes|unless|below)/ ? 'yes' : '';
        $told{$_} = $required for $row->[0] =~ /`(\w+)`/g;
    }

    # These two are required below a bound of their own.

    @known{qw(disk inodes)} = ('yes', 'yes');

    cmp_ok(scalar keys %known, '>', 30, 'are found in the code');
    is_deeply(\%told, \%known, 'are all told, with those that are required');
};


subtest 'usage of sandboxctl' => sub {
    my $program = "$SandboxTest::BUILD/sandboxctl";

    plan(skip_all => "$program is not built") if !-x $program;

    my ($section) = source('docs/operations.md')
                    =~ /^## sandboxctl\n.*?^```\n(.*?)^```$/ms;
    my @known = map { s/\s+$//r } grep { /^\S/ } split /\n/, `$program --help`;
    my ($manual) = source('docs/sandboxctl.8')
                   =~ /^\.Sh SYNOPSIS\n(.*?)^\.Sh /ms;
    my @words = map { "sandboxctl $_" } $manual =~ /^\.Cm (.*)$/mg;

    is(($section // '') =~ tr/\x{e2}\x{80}\x{a6}//dr,
       join('', map { s/\.\.\.//gr . "\n" } @known), 'is that of --help');
    is(join(', ', @words),
       join(', ', map { /^(sandboxctl [a-z ]+?)(?: [[A-Z-].*)?$/ } @known),
       'the manual page has each command');
};


subtest 'options of sandbox-broker' => sub {
    my $code = source('sandbox_core/broker/options.c');
    my %inner = map { ("--$_" => 1) }
                qw(report link listen inherit turn broker);
    my %known = map { $_ => 1 } $code =~ /"(--[\w-]+)"/g;
    my @known = grep { !$inner{$_} } sort keys %known;
    my ($section) = source('docs/operations.md')
                    =~ /^### sandbox-broker\n(.*?)^##/ms;
    my @told = map { $_->[0] =~ /`(--[\w-]+)/g }
               rows($section // '', qr/^`--/);

    is("@{[ sort @told ]}", "@known", 'are all told');
};


subtest 'what has an end in a session' => sub {
    my $code = join '', map { SandboxTest::slurp($_) }
               glob("$ROOT/sandbox_core/init/*.c $ROOT/sandbox_core/broker/*.c");
    my %known = map { $_ => 1 }
                ($code =~ /memcpy\(error(?:->|\.)resource, "([^"]+)"/g,
                 $code =~ /memcpy\(f->resource, "([^"]+)"/g,
                 $code =~ /sbx_init_call_full\([&\w]+, "([^"]+)"/g,
                 $code =~ /sbx_code_quota\(\w+, "([^"]+)"/g,
                 $code =~ /\{ SBX_INIT_SERVERS_\w+, "([^"]+)" \}/g);
    my ($row) = rows(source('docs/errors.md'), qr/^E2003/);
    my ($list) = $row->[3] =~ /of `resource`: (.*?) \(\[limits/;
    my @told = ($list // '') =~ /`([^`]+)`/g;

    is(join(', ', sort @told), join(', ', sort keys %known),
       'is told as a resource of E2003');
};


subtest 'codes of nginx\'s own answers' => sub {
    my $conf = source('conf/sandbox-errors.conf');
    my ($section) = source('docs/errors.md')
                    =~ /^## What nginx answers\n(.*)/ms;
    my (%known, %told);

    $known{$1} = $2 while $conf =~ /return (\d+) '\{[^']*"code":"(E\d+)"/g;

    while ($section =~ /(E\d{4})\s+for\s+([\d,\sand]+)/g) {
        my ($code, $list) = ($1, $2);
        $told{$_} = $code for $list =~ /\d{3}/g;
    }

    is_deeply(\%told, \%known, 'are told by status');

    my %table = map { $_->[0] => $_->[2] =~ s/`//gr }
                rows(source('docs/errors.md'), qr/^E\d/);

    while ($conf =~ /"error":"(\w+)","code":"(E\d+)"/g) {
        is($1, $table{$2} // 'no such', "$2 has its word");
    }
};


# Numbers that are fixed: what a document says, and the constant that it is.

subtest 'what is fixed' => sub {
    my @rows = (
        [ 'limits.md', qr/^\| JSON nesting \| ([\d,]+)/m,
          'policy/json_parser.h', 'SBX_JSON_DEPTH' ],
        [ 'limits.md', qr/^\| names and values of.*?\| ([\d,]+)/m,
          'policy/json_parser.h', 'SBX_JSON_TOKENS_MAX' ],
        [ 'limits.md', qr/^\| commands that live.*?\| ([\d,]+)/m,
          'include/sandbox_wire.h', 'SBX_COMMANDS_MAX' ],
        [ 'limits.md', qr/^\| calls that a session's.*and ([\d,]+) that/m,
          'broker/broker.h', 'SBX_TASKS_MAX' ],
        [ 'limits.md', qr/^\| calls that a session's.*\(([\d,]+) where/m,
          'broker/broker.h', 'SBX_TASKS_LEAST' ],
        [ 'limits.md', qr/^\| file rules.*?\| ([\d,]+) in each/m,
          'include/sandbox_wire.h', 'SBX_RULES_KIND_MAX' ],
        [ 'limits.md', qr/^\| file rules.*and ([\d,]+) names/m,
          'include/sandbox_wire.h', 'SBX_RULES_NAMES_MAX' ],
        [ 'limits.md', qr/^\| `Idempotency-Key` \| ([\d,]+)/m,
          'include/sandbox_wire.h', 'SBX_KEY_MAX' ],
        [ 'limits.md', qr/^\| files and steps.*?\| ([\d,]+)/m,
          'v1/ngx_http_sandbox_v1_run.c', 'NGX_HTTP_SANDBOX_V1_RUN_FILES' ],
        [ 'limits.md', qr/^\| files and steps.*and ([\d,]+)/m,
          'v1/ngx_http_sandbox_v1_run.c', 'NGX_HTTP_SANDBOX_V1_RUN_STEPS' ],
        [ 'limits.md', qr/^\| sessions on a page \| ([\d,]+)/m,
          'v1/ngx_http_sandbox_v1_sessions.c',
          'NGX_HTTP_SANDBOX_V1_PAGE_MAX' ],
        [ 'limits.md', qr/^\| entries on a page \| ([\d,]+)/m,
          'v1/ngx_http_sandbox_v1_files.c',
          'NGX_HTTP_SANDBOX_V1_ENTRIES_MAX' ],
        [ 'limits.md', qr/^\| terminals in.*?\| ([\d,]+)/m,
          'include/sandbox_wire.h', 'SBX_TERMINALS_MAX' ],
        [ 'limits.md', qr/^\| ended sessions.*?\| ([\d,]+)/m,
          'broker/broker.h', 'SBX_ENDED_MAX' ],
        [ 'limits.md', qr/^\| connections to.*?\| ([\d,]+)/m,
          'init/port.c', 'SBX_INIT_PORTS' ],
        [ 'limits.md', qr/^\| head of what.*KB, ([\d,]+) headers/m,
          'v1/ngx_http_sandbox_v1_port_response.c',
          'NGX_HTTP_SANDBOX_V1_PORT_ANSWERED' ],
        [ 'ports.md', qr/^A request has ([\d,]+) headers/m,
          'v1/ngx_http_sandbox_v1_port_request.c',
          'NGX_HTTP_SANDBOX_V1_PORT_HEADERS' ],
        [ 'ports.md', qr/has\s+([\d,]+) connections to ports/,
          'init/port.c', 'SBX_INIT_PORTS' ],
        [ 'files.md', qr/^\| calls that answer at once.*?\| ([\d,]+)/m,
          'init/init_file.h', 'SBX_INIT_SERVERS_CALL' ],
        [ 'files.md', qr/^\| archives and searches \| ([\d,]+)/m,
          'init/init_file.h', 'SBX_INIT_SERVERS_LONG' ],
        [ 'files.md', qr/^\| watches \| ([\d,]+)/m,
          'init/init_file.h', 'SBX_INIT_SERVERS_WATCH' ],
        [ 'files.md', qr/^\| entries \| ([\d,]+)/m,
          'init/file_unpack.c', 'SBX_INIT_UNPACK_ENTRIES' ],
        [ 'files.md', qr/^\| depth of a name \| ([\d,]+)/m,
          'init/file_unpack.c', 'SBX_INIT_UNPACK_DEPTH' ],
        [ 'files.md', qr/A watch has ([\d,]+)\s+directories/,
          'init/init_watch.h', 'SBX_INIT_WATCH_NODES' ],
        [ 'files.md', qr/^\| \[watches that are asked\]\S+ \| ([\d,]+)/m,
          'include/sandbox_files.h', 'SBX_WATCHERS_MAX' ],
        [ 'files.md', qr/One watch keeps ([\d,]+) events/,
          'include/sandbox_files.h', 'SBX_WATCHER_EVENTS' ],
        [ 'files.md', qr/in memory, of ([\d,]+) files/,
          'init/file_meta.c', 'SBX_INIT_META_SLOTS' ],
        [ 'files.md', qr/costs more than ([\d,]+)\s+steps/,
          'init/file_search.c', 'SBX_INIT_SEARCH_STEPS' ],
        [ 'files.md', qr/goes\s+through ([\d,]+)\s+of them/,
          'init/file_list.c', 'SBX_INIT_LIST_NAMES' ],
        [ 'quotas.md', qr/^Up to ([\d,]+) organizations/m,
          'include/sandbox_quota.h', 'SBX_QUOTA_ROWS' ],
        [ 'quotas.md', qr/up to\s+([\d,]+) by the admin API/,
          'include/sandbox_quota.h', 'SBX_QUOTA_LIVE' ],
        [ 'directives.md', qr/at most ([\d,]+) names/,
          'include/sandbox_quota.h', 'SBX_QUOTA_ROWS' ],
        [ 'sessions.md', qr/looks\s+at ([\d,]+) sessions/,
          'v1/ngx_http_sandbox_v1_sessions.c',
          'NGX_HTTP_SANDBOX_V1_SEEN_MAX' ],
        [ 'templates.md', qr/and ([\d,]+) variables/,
          'ngx_http_sandbox_template.c', 'NGX_HTTP_SANDBOX_TEMPLATE_ENV' ],
        [ 'audit.md', qr/beyond ([\d,]+) was left out/,
          'ngx_http_sandbox_audit.c', 'NGX_HTTP_SANDBOX_AUDIT_ARGV' ],
        [ 'audit.md', qr/cut at ([\d,]+) bytes/,
          'ngx_http_sandbox_audit.c', 'NGX_HTTP_SANDBOX_AUDIT_CHANGE' ],
    );

    for my $row (@rows) {
        my ($doc, $said, $file, $name) = @$row;
        my ($told) = source("docs/$doc") =~ $said;
        my ($path) = grep { -e "$ROOT/$_" }
                     map { "$_/$file" } qw(sandbox_core ngx_sandbox_module);
        my ($known) = source($path // $file)
                      =~ /^#define \Q$name\E\s+(\d+)\b/m;

        is(($told // 'nothing') =~ s/,//gr, $known // 'none',
           "$doc: $name");
    }
};


# A word that looks like ours is ours: a directive, a variable, a metric, a
# header, a program's file.

subtest 'names in the text' => sub {
    my $code = join '', map { SandboxTest::slurp($_) }
               glob("$ROOT/ngx_sandbox_module/*.[ch] "
                    . "$ROOT/ngx_sandbox_module/v1/*.c "
                    . "$ROOT/sandbox_core/include/*.h");
    my %metric = map { $_ => 1 } map { s/_(?:bucket|sum|count)$//r }
                 map { $_->[0] =~ /`(sandbox_\w+)`/g }
                 rows(source('docs/metrics.md'), qr/^`sandbox_/);

    for my $file (grep { -f } glob "$ROOT/docs/*.md $ROOT/README.md "
                           . "$ROOT/conf/* $ROOT/conf/identity/*") {
        my %wrong;

        for my $name (SandboxTest::slurp($file)
                      =~ /(?<![\w\/-])(sandbox_[a-z_]+[a-z])(?![\w(\/-])/g)
        {
            $wrong{$name} = 1
                if $code !~ /ngx_string\("\Q$name\E"\)|\Q$name\E\.h|\b\Q$name\E\b/
                   && !$metric{$name =~ s/_(?:bucket|sum|count)$//r}
                   && !-e "$ROOT/$name"
                   && $name !~ /^sandbox_(?:rate|conn|core)$/;
        }

        is(join(' ', sort keys %wrong), '', ($file =~ m{([^/]+)$})[0]);
    }
};


subtest 'codes in the text' => sub {
    my %known = map { $_ => 1 }
                source('ngx_sandbox_module/ngx_http_sandbox_problem.c')
                =~ /"(E\d{4})"/g;

    for my $file (glob "$ROOT/docs/*.* $ROOT/README.md $ROOT/conf/*.conf") {
        my %named = map { $_ => 1 }
                    (SandboxTest::slurp($file) // '') =~ /\b(E[1-5]\d{3})\b/g;

        is(join(' ', grep { !$known{$_} } sort keys %named), '',
           ($file =~ m{([^/]+)$})[0]);
    }
};


subtest 'what make install puts where' => sub {
    my ($recipe) = source('Makefile') =~ /^install: build\n(.*?)^\w/ms;
    my ($table) = source('docs/operations.md')
                  =~ /^### What is installed\n(.*?)^##/ms;
    $table //= '';

    for my $name (map { m{([^/]+)$} } glob "$ROOT/docs/*.8") {
        like($table, qr/\Q$name\E/, "$name is told");
    }

    # ... and each file of conf/ that is meant for others is installed

    for my $file (glob "$ROOT/conf/*") {
        my ($name) = $file =~ m{([^/]+)$};

        next if -d $file || $name eq 'sandbox-run';
        like($recipe, qr{conf/\Q$name\E}, "conf/$name is installed");
        like($table, qr/\Q$name\E/, "conf/$name is told")
            if $name =~ /\.(?:conf|service)$/;
    }
};


# As GitHub makes them of headings.

sub anchors {
    my ($name) = @_;

    my $text = SandboxTest::slurp("$ROOT/$name") // '';

    return { map { s/[`()]//g; s/[^\w -]//g; s/ /-/g; (lc $_ => 1) }
             $text =~ /^#+ (.*)$/mg };
}


subtest 'tests and documents that are named are there' => sub {
    for my $file (glob "$ROOT/docs/*.md $ROOT/README.md") {
        my $text = SandboxTest::slurp($file);
        my ($name) = $file =~ m{([^/]+)$};
        my %named = map { $_ => 1 } $text =~ m{`(t/[\w/.-]+\.[ct])`}g;

        while ($text =~ m{\]\(([\w/.-]*)(?:#([\w-]+))?\)}g) {
            my ($link, $anchor) = ($1, $2);
            my $there = $link eq '' ? $file =~ s{^\Q$ROOT\E/}{}r
                        : $name eq 'README.md' ? $link : "docs/$link";

            $named{$there} = 1;
            ok(anchors($there)->{$anchor}, "$name: $there#$anchor")
                if defined $anchor;
        }

        ok(-e "$ROOT/$_", "$name: $_") for sort keys %named;
    }
};


done_testing();
