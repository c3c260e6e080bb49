# make check: the compilers and the analysers, none of which may say a word.
# make fuzz: the parsers of hostile bytes under libFuzzer.
#
# Each source has a stamp below build/check, so that a second run looks only
# at what changed.

CHECK      := $(BUILD)/check
ALL_SRCS   := $(CORE_SRCS) $(MODULE_SRCS)
HEADERS    := $(wildcard $(CORE)/*/*.h ngx_sandbox_module/*.h \
                         ngx_sandbox_module/*/*.h)
C_FILES    := $(ALL_SRCS) $(HEADERS) $(TEST_SRCS) $(wildcard t/core/*.h) \
              $(wildcard t/fuzz/*.c t/fuzz/lib/*.[ch] t/bench/lib/*.[ch])
SCRIPTS    := bootstrap .ci/run conf/sandbox-run t/fuzz/lib/run $(wildcard t/lib/run-v2) \
              $(KERNEL_HOOKS) \
              $(wildcard t/bench/run t/bench/*.sh)
PERL_FILES := $(wildcard t/*.t t/*/*.t t/lib/*.pm t/lib/*/*.pm \
              t/bench/lib/*.pm t/soak/run)
LONG_FILES := $(C_FILES) $(PERL_FILES) $(wildcard t/lib/*/*.c t/soak/*.py) \
              $(KERNEL_FILES)
LINES_MAX  := 900

# What a module's source is compiled with, for tools that do not ask nginx.
NGX_INCS    = $(addprefix -I$(NGX_TREE)/src/,core event event/modules \
              os/unix http http/modules http/v2) -I$(NGX_BUILD) \
              -Ingx_sandbox_module -I$(CORE)/include -I$(CORE)/wire \
              -I$(CORE)/policy

# $(call flags_of,source)
flags_of    = $(if $(filter ngx_%,$(1)),$(NGX_INCS),\
              -std=gnu11 -D_GNU_SOURCE $(CORE_INCS) -It/core)

# $(call analysis_of,source): for what reads one source at a time.
analysis_of = -D_GNU_SOURCE $(flags_of) $(if $(filter %/error.c,$(1)),,\
              -include t/lib/analysis.h)

check: build
	@+$(MAKE) --no-print-directory -j$(JOBS) check-all
	@echo "check: nothing to complain of in $(words $(ALL_SRCS)) sources"

.PHONY: check-all check-gcc check-clang check-style check-shell check-perl \
        check-headers
check-all: check-style check-shell check-perl check-headers check-clang \
           $(ALL_SRCS:%=$(CHECK)/tidy/%.ok) \
           $(ALL_SRCS:%=$(CHECK)/cppcheck/%.ok) \
           $(ALL_SRCS:%=$(CHECK)/analyzer/%.ok)

# gcc's warnings are errors in every build; clang's are asked for here, and by
# clang-tidy of what it reads.
check-clang: $(TEST_SRCS:%=$(CHECK)/clang/%.ok)

$(CHECK)/clang/%.ok: % $(HEADERS) t/lib/check.mk
	@mkdir -p $(@D)
	@clang $(WARNINGS) -O2 -fsyntax-only $(call flags_of,$<) $<
	@touch $@

# Left out, of what the three groups have:
#   bugprone-easily-swappable-parameters   a matter of signatures, not of bugs
#   bugprone-reserved-identifier, cert-dcl37-c, cert-dcl51-cpp
#                          _GNU_SOURCE, and nginx's own guards of headers
#   bugprone-assignment-in-if-condition    nginx's headers
#   bugprone-narrowing-conversions         -Wconversion for int and size_t
#                          which the bounds before each conversion make moot
#   bugprone-branch-clone  tables of cases that do alike on purpose
#   bugprone-sizeof-expression, bugprone-macro-parentheses
#                          nginx's macros (ngx_string, offsets)
#   bugprone-implicit-widening-of-multiplication-result
#                          constants such as 64 * 1024 * 1024
#   bugprone-not-null-terminated-result
#                          counted strings, of which there are many
#   clang-analyzer-deadcode.DeadStores
#                          a local that is handed over and set to -1 for its
#                          cleanup attribute; gcc warns of what is never used
#   cert-err33-c           wants the result of every printf
#   cert-err34-c           numbers of procfs and of files of our own
#   clang-analyzer-security.insecureAPI.strcpy
#                          constants into arrays that hold them, which
#                          _FORTIFY_SOURCE checks as well
#   clang-analyzer-unix.Malloc
#                          owners in lists and in other sources; leaks and
#                          uses after free are the sanitizers' to find
#   clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling
#                          wants memcpy_s, which no libc here has
TIDY_CHECKS := -*,clang-diagnostic-*,bugprone-*,cert-*,clang-analyzer-*,$\
    -bugprone-easily-swappable-parameters,$\
    -bugprone-reserved-identifier,-cert-dcl37-c,-cert-dcl51-cpp,$\
    -bugprone-assignment-in-if-condition,$\
    -bugprone-narrowing-conversions,-bugprone-branch-clone,$\
    -bugprone-sizeof-expression,-bugprone-macro-parentheses,$\
    -bugprone-implicit-widening-of-multiplication-result,$\
    -bugprone-not-null-terminated-result,-cert-err33-c,-cert-err34-c,$\
    -clang-analyzer-security.insecureAPI.strcpy,$\
    -clang-analyzer-unix.Malloc,$\
    -clang-analyzer-deadcode.DeadStores,$\
    -clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling

# How many states clang's analyser follows in a function.  A third of its own
# default takes a third of the time; TIDY_NODES=225000 is the whole.
TIDY_NODES ?= 75000

$(CHECK)/tidy/%.ok: % $(HEADERS) t/lib/check.mk
	@mkdir -p $(@D)
	@clang-tidy --quiet --checks='$(TIDY_CHECKS)' --warnings-as-errors='*' \
	    $< -- $(WARNINGS) $(if $(filter ngx_%,$<),-Wno-unused-parameter) \
	    -Xclang -analyzer-config -Xclang max-nodes=$(TIDY_NODES) \
	    -O2 $(call analysis_of,$<) > $@.log 2>&1 \
	    || { grep -v ' warnings generated' $@.log; exit 1; }
	@mv $@.log $@

$(CHECK)/cppcheck/%.ok: % $(HEADERS) t/lib/cppcheck.suppress
	@mkdir -p $(@D)
	@cppcheck --quiet --std=c11 --enable=warning,portability,performance \
	    --inline-suppr --suppressions-list=t/lib/cppcheck.suppress \
	    --error-exitcode=1 $(filter -I$(CORE)% -Ingx%,$(call flags_of,$<)) $<
	@touch $@

# What gcc's analyser has beside clang's: descriptors, files, double frees,
# signal handlers, tainted sizes.  Left out is what clang's sees as well, and
# without following paths that no value takes: NULLs, uninitialised values,
# leaks.
GCC_LEFT   := too-complex null-dereference null-argument malloc-leak \
              possible-null-dereference possible-null-argument \
              use-of-uninitialized-value

$(CHECK)/analyzer/%.ok: % $(HEADERS) t/lib/check.mk
	@mkdir -p $(@D)
	@gcc -O1 -fanalyzer -Werror $(GCC_LEFT:%=-Wno-analyzer-%) \
	    $(call analysis_of,$<) -c -o /dev/null $<
	@touch $@

# Each public header stands alone, in C and after any other.
check-headers: $(HEADERS)
	@for h in $(filter $(CORE)/%,$(HEADERS)); do \
	    printf '#include "%s"\n#include "%s"\n' $${h##*/} $${h##*/} \
	    | gcc -std=gnu11 -D_GNU_SOURCE $(WARNINGS) $(CORE_INCS) \
	        -fsyntax-only -x c - || exit 1; \
	done

check-style: $(LONG_FILES)
	@awk 'length($$0) > 79 { printf "%s:%d: over 79 columns\n", FILENAME, FNR; e = 1 } \
	    /\t/ { printf "%s:%d: a tab\n", FILENAME, FNR; e = 1 } \
	    /[ ]$$/ { printf "%s:%d: space at the end\n", FILENAME, FNR; e = 1 } \
	    /TODO|FIXME|(^|[^X])XXX([^X]|$$)/ { printf "%s:%d: unfinished\n", FILENAME, FNR; e = 1 } \
	    END { exit e }' $(C_FILES)
	@awk 'FNR == $(LINES_MAX) + 1 { printf "%s: over $(LINES_MAX) lines: split it by its job\n", FILENAME; e = 1 } \
	    END { exit e }' $(sort $(LONG_FILES))

check-shell: $(SCRIPTS)
	@if command -v shellcheck > /dev/null; then shellcheck $(SCRIPTS); fi

check-perl: $(PERL_FILES)
	@for f in $(PERL_FILES); do \
	    perl -It/lib -It/lib/openapi -wc $$f 2>&1 | grep -v 'syntax OK' \
	    && exit 1; :; \
	done; :


# ---- fuzzing --------------------------------------------------------------
#
# t/fuzz/NAME.c is a target, t/fuzz/corpus/NAME/ its inputs, t/fuzz/dict/ has
# its words.  All share an archive of the core and one of the module, so that
# each source is compiled once and a target is linked with what it uses.  What
# includes worker.h is the module at work, with nginx's own functions about it.
#
# What t/fuzz.t replays, in seconds, is compiled without optimization: that
# takes a third of the time.  "make fuzz" has programs of its own.

SECONDS    ?= 60
FUZZ       := $(BUILD)/fuzz
FUZZ_OPT   ?= -O0
FUZZ_NAMES := $(sort $(patsubst t/fuzz/%.c,%,$(wildcard t/fuzz/*.c)))
TARGETS    ?= $(FUZZ_NAMES)
FUZZ_FLAGS := -gline-tables-only $(FUZZ_OPT) -fPIC -fsanitize=fuzzer-no-link \
              -fsanitize=address,undefined -fno-sanitize-recover=undefined
# What no input comes to need not be there: coming to it is a finding.
FUZZ_LINK  := -no-pie -fsanitize=fuzzer,address,undefined \
              -Wl,--unresolved-symbols=ignore-all \
              $(if $(shell command -v ld.lld),-fuse-ld=lld)
FUZZ_NGX   := $(patsubst t/fuzz/%.c,%,\
                $(shell grep -l 'worker\.h\|ngx_http' t/fuzz/*.c))
# What broker_here.c has of the broker is not compiled once more.
FUZZ_HERE  := $(addprefix $(CORE)/broker/,$(addsuffix .c,broker client clock \
                control discard ids keeper keeper_start languages options))
FUZZ_SRCS  := $(filter-out $(FUZZ_HERE),$(filter $(addprefix $(CORE)/,\
                policy/% wire/% init/% egress/% broker/%),$(LIB_SRCS)))
FUZZ_CORE  := $(FUZZ_SRCS:%.c=$(FUZZ)/obj/%.o)
FUZZ_MODULE := $(MODULE_SRCS:%.c=$(FUZZ)/obj/%.o)
FUZZ_WORKER := $(patsubst %.c,$(FUZZ)/obj/%.o,$(wildcard t/fuzz/lib/worker*.c))
FUZZ_BROKER := $(patsubst %.c,$(FUZZ)/obj/%.o,$(wildcard t/fuzz/lib/broker*.c)) \
               $(FUZZ)/obj/t/fuzz/lib/machine.o

# Of nginx's strings the empty one is often NULL, and NULL + 0 is what it is.
# Its headers are read once.
FUZZ_PCH   := $(FUZZ)/module.pch
FUZZ_BY_NGX = $(NGX_INCS) -It/fuzz/lib -fno-sanitize=pointer-overflow
fuzz_flags  = $(if $(filter ngx_% t/fuzz/lib/worker% $(FUZZ_NGX:%=t/fuzz/%.c),\
              $(1)),$(FUZZ_BY_NGX) -include-pch $(FUZZ_PCH),\
              -std=gnu11 -D_GNU_SOURCE $(CORE_INCS) -It/fuzz/lib)

$(FUZZ)/objects: FORCE
	$(call keep,'$(FUZZ_FLAGS)')

$(FUZZ)/programs: FORCE
	$(call keep,'$(FUZZ_LINK)' $(FUZZ_SRCS) $(MODULE_SRCS))

$(FUZZ)/obj/%.o: %.c $(FUZZ)/objects
	@mkdir -p $(@D)
	$(call say,CC,$< (fuzz))
	$(Q)clang $(FUZZ_FLAGS) $(call fuzz_flags,$<) -MMD -MP -c -o $@ $<

$(FUZZ_MODULE) $(FUZZ_WORKER) $(FUZZ_NGX:%=$(FUZZ)/obj/t/fuzz/%.o): \
    $(FUZZ_PCH)

$(FUZZ_PCH): ngx_sandbox_module/ngx_http_sandbox.h $(FUZZ)/objects \
    | $(NGX_BUILD)/Makefile
	$(call say,CC,$< (fuzz))
	$(Q)clang $(FUZZ_FLAGS) $(FUZZ_BY_NGX) -x c-header -MMD -MP \
	    -MF $(FUZZ)/module.d -o $@ $<

$(FUZZ)/core.a: $(FUZZ_CORE)
$(FUZZ)/module.a: $(FUZZ_MODULE)

$(FUZZ)/core.a $(FUZZ)/module.a: $(FUZZ)/programs
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcsD $@ $(filter %.o,$^)

# nginx's program is linked as if it were a library.
$(FUZZ)/libnginx.so: t/fuzz/lib/nginx-library.pl
	@mkdir -p $(@D)
	$(Q)perl $< $(NGINX) $@

NGINX      ?= /usr/sbin/nginx

$(FUZZ_NGX:%=$(FUZZ)/%): $(FUZZ_WORKER) $(FUZZ)/module.a $(FUZZ)/libnginx.so

$(FUZZ)/broker $(FUZZ)/heir: $(FUZZ_BROKER)
$(FUZZ)/keeper: $(filter-out %/broker_check.o,$(FUZZ_BROKER))

$(FUZZ)/%: $(FUZZ)/obj/t/fuzz/%.o $(FUZZ)/core.a $(FUZZ)/programs
	$(call say,LD,$@)
	$(Q)clang $(FUZZ_LINK) -o $@ $(filter %.o,$^) \
	    $(filter %/module.a,$^) $(filter %/core.a,$^) \
	    $(filter %.so,$^) -Wl,-rpath,$(FUZZ) $(CORE_LIBS) $(EGRESS_LIBS)

.SECONDARY: $(FUZZ_NAMES:%=$(FUZZ)/obj/t/fuzz/%.o)

-include $(FUZZ_CORE:.o=.d) $(FUZZ_MODULE:.o=.d) $(FUZZ_WORKER:.o=.d) \
         $(FUZZ_BROKER:.o=.d) $(FUZZ)/module.d $(FUZZ_NAMES:%=$(FUZZ)/obj/t/fuzz/%.d)

.PHONY: fuzz-programs
fuzz-programs: $(TARGETS:%=$(FUZZ)/%)
	@:

# What t/fuzz.t replays is built with the tests, where it can be.
FUZZ_CAN    = $(wildcard $(shell clang -print-resource-dir 2> \
                /dev/null)/lib/linux/libclang_rt.fuzzer-*.a)

.PHONY: fuzz-replay
fuzz-replay: | tests
	$(if $(SANITIZED)$(FAULTED),,$(if $(filter t/fuzz.t,$(TESTS_RUN)),\
	    $(if $(FUZZ_CAN),@+$(MAKE) --no-print-directory fuzz-programs)))

test-builds: fuzz-replay

# The seeds that have structures in them, after a change of a layout.
.PHONY: fuzz-seeds
fuzz-seeds: t/fuzz/lib/seeds.c $(LIB)
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE $(WARNINGS) $(CORE_INCS) \
	    -o $(FUZZ)/seeds $< $(LIB) && $(FUZZ)/seeds

# SECONDS for each target, or for each of TARGETS="a b"; what is found is kept
# in build/fuzz/run.
fuzz:
	@+$(MAKE) --no-print-directory -j$(JOBS) FUZZ=$(BUILD)/fuzz/run \
	    FUZZ_OPT=-O1 fuzz-programs
	@t/fuzz/lib/run $(BUILD)/fuzz/run $(SECONDS) $(TARGETS)
