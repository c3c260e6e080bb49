package OpenAPICode;

# Calls of code and contexts, each compared with the document.

use strict;
use warnings;

use Exporter qw(import);
use Test::More;
use OpenAPICalls;

our @EXPORT = qw(code_calls);


# Of a session with the capability, of one without it, and of one that never
# was.

sub code_calls {
    my (%of) = @_;

    my %s = (session_id => $of{with});
    my %gone = (session_id => $of{unknown});
    my %not = (session_id => $of{without});
    my %type = (json => '{}', headers => { 'Content-Type' => 'text/plain' });
    my $res = calls(runCode => 200, 'the example', %s,
                    json => example(runCode => 'least'));

    is($res->{json}{text}, '42', 'does what it says');
    $res = calls(runCode => 200, 'the other example', %s,
                 json => example(runCode => 'whole'));
    is($res->{json}{stdout}, "hello\n", 'does what it says');
    calls(runCode => 200, 'an error', %s, json => { code => '1/0' });
    calls(runCode => 200, 'a death', %s,
          json => { code => 'import os; os._exit(1)' });
    calls(runCode => 200, 'results', %s, json => { code => <<'PY' });
display({'text/html': '<b>', 'application/json': [1]}, raw=True)
open('made', 'w').close()
PY

    for my $form (qw(application/x-ndjson text/event-stream)) {
        $res = calls(runCode => 200, "as $form", %s,
                     json => { code => "print(1)\n1/0" },
                     headers => { Accept => $form });
        is($res->{headers}{'content-type'}, $form, 'is of that type');
    }

    calls(runCode => '400 E3001', 'a language that is not there', %s,
          valid => 1, json => { code => '1', language => 'cobol' });
    calls(runCode => '400 E2002', 'more than the session has', %s,
          valid => 1, json => { code => '1', timeout_s => 1_000_000 });
    calls(runCode => '404 E3005', 'no such context', %s, valid => 1,
          json => { code => '1', context_id => 'none' });
    calls(runCode => '403 E3004', 'without the capability', %not, valid => 1,
          json => { code => '1' });
    calls(runCode => '404 E2009', 'no such session', %gone, valid => 1,
          json => { code => '1' });
    calls(runCode => '413 E4005', 'a large body', %s,
          json => { code => 'a' x 70_000 });
    calls(runCode => '415 E3011', 'another type of body', %s, %type);

    $res = calls(createContext => 201, 'the example', %s,
                 json => example(createContext => 'bash'));
    my %c = (%s, context_id => $res->{json}{context_id});

    calls(createContext => '400 E3001', 'an unknown field', %s,
          json => { colour => 'red' });
    calls(createContext => '400 E4002', 'no path', %s,
          json => { cwd => "/a\0b" });
    calls(createContext => '413 E4005', 'a large body', %s,
          json => { cwd => 'a' x 70_000 });
    calls(createContext => '415 E3011', 'another type of body', %s, %type);
    calls(listContexts => 200, 'all', %s);
    calls(restartContext => 200, 'one', %c);
    calls(deleteContext => 204, 'one', %c);

    for my $name (qw(listContexts createContext restartContext
                     deleteContext))
    {
        my %a = $name =~ /(?:start|delete)/ ? (context_id => 'none') : ();

        calls($name => '403 E3004', 'without the capability', %not, %a);
        calls($name => '404 E2009', 'no such session', %gone, %a);
        calls($name => '404 E3005', 'no such context', %s, %a) if %a;
    }

    return;
}


1;
