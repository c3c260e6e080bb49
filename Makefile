# Builds the nginx module and the core's programs, all of it under $(BUILD).
#
#   make build [NGX_SRC=dir] [SANITIZE=1] [FAULTS=1] [CC=clang] [BUILD=dir]
#   make start|stop [PREFIX=dir] [PORT=n]
#   make test [TESTS=files] [SANITIZE=1]
#   make soak [MINUTES=n] [SEED=n]
#   make check | bench | fuzz [SECONDS=n] | install [DESTDIR=dir] | clean

MAKEFLAGS += --no-builtin-rules
SHELL     := /bin/bash
.SUFFIXES:
.DELETE_ON_ERROR:

ROOT     := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))

CC       := $(if $(filter default,$(origin CC)),gcc,$(CC))
SANITIZE ?=
FAULTS   ?=
NGX_SRC  ?= /usr/share/nginx/src
PREFIX   ?= $(ROOT)/build/run
PORT     ?= 8080
JOBS     ?= 3

SANITIZED := $(filter 1 yes,$(SANITIZE))
# With the points of sandbox_fault.h: for tests.
FAULTED   := $(if $(SANITIZED)$(filter 1 yes,$(FAULTS)),1)
BUILD     ?= build$(if $(SANITIZED),/asan,$(if $(FAULTED),/faults))
override BUILD := $(abspath $(BUILD))

VERSION  := $(shell sed -n \
    's/^.define NGX_HTTP_SANDBOX_VERSION *"\([^"]*\)".*/\1/p' \
    ngx_sandbox_module/ngx_http_sandbox.h)

# V=1 shows the commands.
Q   := $(if $(V),,@)
say  = $(if $(V),,@printf '  %-4s %s\n' $(1) '$(patsubst $(ROOT)/%,%,$(2))')

.PHONY: build core module start stop test test-v2 tests check bench soak \
        fuzz install clean FORCE

# One after the other: nginx's makefile builds the core as well (config.make).
build:
	$(if $(MODULE_SRCS),@+$(MAKE) --no-print-directory module)
	@+$(MAKE) --no-print-directory core


# ---- the core -------------------------------------------------------------

CORE       := sandbox_core
CORE_DIRS  := policy wire isolate broker init egress session tools
CORE_SRCS  := $(sort $(foreach d,$(CORE_DIRS),\
                $(wildcard $(CORE)/$(d)/*.c) $(wildcard $(CORE)/$(d)/*/*.c)))

# A program's source is the one with main() in it; all the others go into
# the archive, from which programs, tests and the module take what they use.
CORE_MAINS := $(if $(CORE_SRCS),$(sort $(shell grep -l '^main\b' $(CORE_SRCS))))
LIB_SRCS   := $(filter-out $(CORE_MAINS),$(CORE_SRCS))

CORE_INCS  := -I$(CORE)/include $(addprefix -I$(CORE)/,$(CORE_DIRS))

FAULT_FLAGS := $(if $(FAULTED),-DSBX_FAULTS)

WARNINGS   := -Wall -Wextra -Wshadow -Wstrict-prototypes \
              -Wmissing-prototypes -Wformat=2 -Werror

SAN_FLAGS  := -fsanitize=address,undefined -fno-omit-frame-pointer \
              -fno-sanitize-recover=undefined
TRAP_FLAGS := -fsanitize=undefined $(if $(findstring clang,$(CC)),\
              -fsanitize-trap=undefined,-fsanitize-undefined-trap-on-error)

CORE_BASE  := -std=gnu11 -D_GNU_SOURCE -g $(WARNINGS) -fvisibility=hidden \
              -fPIC -fstack-protector-strong $(FAULT_FLAGS)
CORE_LIBS  := -lseccomp -lcap -lpcre2-8 -lyajl -l:libarchive.a -lz -lmnl
# Of the egress, and of what tests its parts.
EGRESS_LIBS := -lcares -lssl -lcrypto
CORE_LINK  := -pie -Wl,-z,relro,-z,now -Wl,-z,noexecstack -Wl,--as-needed

CORE_DIR   := $(BUILD)/core
CORE_CFLAGS = $(CORE_BASE) \
              $(if $(SANITIZED),-O1 $(SAN_FLAGS),-O2 -D_FORTIFY_SOURCE=2) \
              $(EXTRA_CFLAGS)

# Process 1 of a session is static: AddressSanitizer cannot be in it, so its
# objects are compiled a second time there, with traps alone.
STATIC_DIR := $(if $(SANITIZED),$(BUILD)/static,$(CORE_DIR))
STATIC_CFLAGS = $(if $(SANITIZED),$(CORE_BASE) -O1 $(TRAP_FLAGS),\
                $(CORE_CFLAGS)) $(EXTRA_CFLAGS)

LIB        := $(BUILD)/libsandbox_core.a
STATIC_LIB := $(if $(SANITIZED),$(BUILD)/libsandbox_static.a,$(LIB))
LIB_OBJS   := $(LIB_SRCS:$(CORE)/%.c=$(CORE_DIR)/%.o)

BROKER_MAIN := $(filter $(CORE)/broker/%,$(CORE_MAINS))
INIT_MAIN   := $(filter $(CORE)/init/%,$(CORE_MAINS))
CTL_MAIN    := $(filter $(CORE)/tools/%,$(CORE_MAINS))
SESSION_MAIN := $(filter $(CORE)/session/%,$(CORE_MAINS))
EGRESS_MAIN := $(filter $(CORE)/egress/%,$(CORE_MAINS))

PROGRAMS   := $(if $(BROKER_MAIN),$(BUILD)/sandbox-broker) \
              $(if $(INIT_MAIN),$(BUILD)/sandbox-init) \
              $(if $(CTL_MAIN),$(BUILD)/sandboxctl) \
              $(if $(EGRESS_MAIN),$(BUILD)/sandbox-egress) \
              $(if $(SESSION_MAIN),$(BUILD)/sandbox-session)

core: $(LIB) $(PROGRAMS)
	@:

# $(call keep,words): writes the target, unless it says just that already.
define keep
@mkdir -p $(@D); printf '%s\n' $(1) > $@.new; \
if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
endef

$(BUILD)/core.list: FORCE
	$(call keep,$(LIB_SRCS))

$(BUILD)/core.flags: FORCE
	$(call keep,'$(CC) $(CORE_CFLAGS)' '$(STATIC_CFLAGS)')

$(CORE_DIR)/%.o: $(CORE)/%.c $(BUILD)/core.flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CORE_CFLAGS) $(DEFINES) $(CORE_INCS) -MMD -MP -c -o $@ $<

$(CORE_DIR)/tools/%.o: DEFINES = -DSBX_VERSION='"$(VERSION)"'
$(CORE_DIR)/session/%.o: DEFINES = -DSBX_HELPER_DIR='"$(HELPER_DIR)"'

$(LIB): $(LIB_OBJS) $(BUILD)/core.list
	@rm -f $@
	$(call say,AR,$@)
	$(Q)ar rcsD $@ $(LIB_OBJS)

# What a program without nginx links with: the library of sandbox_session.h,
# which needs nothing but libc.
SESSION_LIB  := $(BUILD)/libsandbox_session.a
SESSION_OBJS := $(addprefix $(CORE_DIR)/,session/session.o \
                  session/session_run.o session/session_helper.o \
                  policy/error.o policy/limits.o policy/util.o wire/words.o)

core: $(SESSION_LIB)

$(SESSION_LIB): $(SESSION_OBJS)
	@rm -f $@
	$(call say,AR,$@)
	$(Q)ar rcsD $@ $(SESSION_OBJS)

ifneq ($(SANITIZED),)
$(STATIC_DIR)/%.o: $(CORE)/%.c $(BUILD)/core.flags
	@mkdir -p $(@D)
	$(call say,CC,$< (static))
	$(Q)$(CC) $(STATIC_CFLAGS) $(CORE_INCS) -MMD -MP -c -o $@ $<

$(STATIC_LIB): $(LIB_SRCS:$(CORE)/%.c=$(STATIC_DIR)/%.o) $(BUILD)/core.list
	@rm -f $@
	$(call say,AR,$@)
	$(Q)ar rcsD $@ $(filter %.o,$^)
endif

$(BUILD)/sandbox-broker: $(BROKER_MAIN:$(CORE)/%.c=$(CORE_DIR)/%.o) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(CORE_LINK) $(if $(SANITIZED),$(SAN_FLAGS)) -o $@ $^ \
	    $(CORE_LIBS)

$(BUILD)/sandboxctl: $(CTL_MAIN:$(CORE)/%.c=$(CORE_DIR)/%.o) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(CORE_LINK) $(if $(SANITIZED),$(SAN_FLAGS)) -o $@ $^ \
	    $(CORE_LIBS)

$(BUILD)/sandbox-egress: $(EGRESS_MAIN:$(CORE)/%.c=$(CORE_DIR)/%.o) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(CORE_LINK) $(if $(SANITIZED),$(SAN_FLAGS)) -o $@ $^ \
	    $(CORE_LIBS) $(EGRESS_LIBS)

$(BUILD)/sandbox-session: $(SESSION_MAIN:$(CORE)/%.c=$(CORE_DIR)/%.o) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(CORE_LINK) $(if $(SANITIZED),$(SAN_FLAGS)) -o $@ $^ \
	    $(CORE_LIBS)

$(BUILD)/sandbox-init: $(INIT_MAIN:$(CORE)/%.c=$(STATIC_DIR)/%.o) $(STATIC_LIB)
	$(call say,LD,$@)
	$(Q)$(CC) -static -Wl,-z,relro,-z,now -Wl,-z,noexecstack -o $@ $^ \
	    -lpcre2-8 -larchive -lz

# libarchive is linked into process 1, which is static: its archive is needed.
$(sort $(CORE_DIR)/init/tar.o $(STATIC_DIR)/init/tar.o): | have-libarchive

.PHONY: have-libarchive
have-libarchive:
	@echo '#include <archive.h>' | $(CC) -E -o /dev/null - 2> /dev/null \
	&& [[ $$($(CC) -print-file-name=libarchive.a) = */* ]] \
	|| { echo 'archive.h and libarchive.a are missing: install' \
	    'libarchive-dev' >&2; exit 1; }

# For the core's own tests a process 1 with AddressSanitizer after all.  Not in
# its threads without a stack of libc's, and in what they become.
ifneq ($(SANITIZED),)
SAN_INIT   := $(BUILD)/dynamic/sandbox-init
SAN_PLAIN  := $(addprefix $(STATIC_DIR)/init/,launch.o child.o)

core: $(SAN_INIT)

$(SAN_INIT): $(INIT_MAIN:$(CORE)/%.c=$(CORE_DIR)/%.o) t/lib/init-asan.c \
             $(SAN_PLAIN) $(LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(CORE_BASE) $(CORE_LINK) $(SAN_FLAGS) -o $@ $^ $(CORE_LIBS)
endif

-include $(CORE_SRCS:$(CORE)/%.c=$(CORE_DIR)/%.d)
-include $(if $(SANITIZED),$(CORE_SRCS:$(CORE)/%.c=$(STATIC_DIR)/%.d))


include kernels.mk


# ---- the module -----------------------------------------------------------

MODULE     := $(BUILD)/ngx_http_sandbox_module.so
MODULE_SRCS := $(sort $(wildcard ngx_sandbox_module/*.c) \
                 $(wildcard ngx_sandbox_module/*/*.c))

NGX_BUILD  := $(BUILD)/nginx
NGX_TREE   := $(BUILD)/nginx-src
# nginx's handlers all have the same parameters, and seldom use each.
NGX_CC     := -Wextra -Wno-unused-parameter -Wshadow -Wstrict-prototypes \
              -Wmissing-prototypes -Wformat=2 -fstack-protector-strong \
              $(FAULT_FLAGS) \
              $(if $(SANITIZED),$(SAN_FLAGS),-D_FORTIFY_SOURCE=2)
NGX_LD     := -Wl,-z,relro,-z,now $(if $(SANITIZED),$(SAN_FLAGS))

$(BUILD)/nginx.list: FORCE
	$(call keep,'$(CC) $(NGX_SRC) $(NGX_CC) $(NGX_LD)' $(MODULE_SRCS))

# nginx's configure writes where it runs: so it runs in a tree of links, and
# the sources may be read-only.  Debian's tree tells how its nginx was
# configured; a plain one is told what fits a binary built --with-compat.
$(NGX_BUILD)/Makefile: $(BUILD)/nginx.list config config.make \
                       $(wildcard $(NGX_SRC)/conf_flags) \
                       $(NGX_SRC)/src/core/nginx.h
	@rm -rf $(NGX_BUILD) $(NGX_TREE)
	@mkdir -p $(NGX_BUILD) $(NGX_TREE)
	@ln -s $(abspath $(NGX_SRC))/* $(NGX_TREE)/
	@cd $(NGX_TREE) && rm -f Makefile && \
	NGX_CONF_FLAGS=(--with-compat --with-threads) && \
	if [ -f conf_flags ]; then . ./conf_flags; fi && \
	if [ -f configure ]; then c=./configure; else c=auto/configure; fi && \
	SANDBOX_BUILD=$(BUILD) $$c "$${NGX_CONF_FLAGS[@]}" --with-cc=$(CC) \
	    --with-cc-opt='$(strip $(NGX_CC))' \
	    --with-ld-opt='$(strip $(NGX_LD))' --builddir=$(NGX_BUILD) \
	    --add-dynamic-module=$(ROOT) > $(BUILD)/configure.log 2>&1 \
	|| { tail -20 $(BUILD)/configure.log; rm -f $@; exit 1; }

$(NGX_SRC)/src/core/nginx.h:
	@echo "$@ is missing: install nginx-dev, or give NGX_SRC=dir with" \
	    "nginx's source" >&2; exit 1

module: $(NGX_BUILD)/Makefile
	@+$(MAKE) $(if $(V),,-s) --no-print-directory -C $(NGX_TREE) \
	    -f $(NGX_BUILD)/Makefile modules
	@cmp -s $(NGX_BUILD)/ngx_http_sandbox_module.so $(MODULE) \
	    || cp $(NGX_BUILD)/ngx_http_sandbox_module.so $(MODULE)


# ---- serving --------------------------------------------------------------

start: build
	@conf/sandbox-run start "$(PREFIX)" "$(PORT)" "$(BUILD)"

stop:
	@conf/sandbox-run stop "$(PREFIX)"


# ---- tests ----------------------------------------------------------------

TEST_SRCS  := $(sort $(wildcard t/core/*.c))
TEST_PROGS := $(TEST_SRCS:%.c=$(BUILD)/%)

# The longest go first, beside all the others; what measures processor time
# last, when it is over.
TESTS_FIRST := t/v2.t t/sanitize.t
TESTS_LAST := t/limits-cpu.t
TESTS_ALL  := $(TESTS_FIRST) $(filter-out $(TESTS_FIRST) $(TESTS_LAST),\
                $(sort $(wildcard t/*.t t/*/*.t))) $(TESTS_LAST)

# A C test is named by its source or its program: TESTS=t/core/x.c.
TESTS_RUN   = $(if $(TESTS),$(foreach f,$(TESTS),\
                $(if $(filter %.c,$(f)),$(BUILD)/$(f:.c=),$(f))),$(TESTS_ALL))

TEST_ENV    = SANDBOX_BUILD=$(BUILD) SANDBOX_SANITIZE=$(SANITIZED) \
              SANITIZE=$(SANITIZED)

# Objects first, so that an unchanged test is not linked again for nothing.
# Left out: results that are looked at afterwards, by what they have done, and
# variables that are set unless the test has ended.
TEST_CFLAGS := $(CORE_BASE) -O1 $(if $(SANITIZED),$(SAN_FLAGS)) \
               -Wno-unused-result -Wno-maybe-uninitialized

$(BUILD)/t/core/%.o: t/core/%.c $(BUILD)/core.flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(TEST_CFLAGS) $(CORE_INCS) -It/core -MMD -MP -c -o $@ $<

$(BUILD)/t/core/%: $(BUILD)/t/core/%.o $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(CORE_LINK) $(if $(SANITIZED),$(SAN_FLAGS)) -o $@ $< $(LIB) \
	    $(CORE_LIBS) $(EGRESS_LIBS)

.SECONDARY: $(TEST_PROGS:=.o)

-include $(TEST_PROGS:=.d)

tests: build
	@+$(MAKE) --no-print-directory test-programs

# What tests put into a session, static and of no sanitizer.
INSIDE     := $(patsubst t/lib/%.c,build/t/%,$(wildcard t/lib/inside/*.c))

build/t/inside/%: t/lib/inside/%.c $(wildcard t/lib/inside/*.h)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)gcc -std=gnu11 -D_GNU_SOURCE -O2 -static -o $@ $<

# What tests load into nginx.
PRELOAD    := $(patsubst t/lib/%.c,build/t/%.so,$(wildcard t/lib/preload/*.c))

build/t/preload/%.so: t/lib/preload/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)gcc -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -fPIC -shared \
	    -o $@ $< -ldl

.PHONY: test-programs
test-programs: $(TEST_PROGS) $(INSIDE) $(PRELOAD)
	@:

# What t/survive/ runs against: a build with the points of sandbox_fault.h.
.PHONY: faults
faults:
	$(if $(FAULTED),,$(if $(filter t/survive/%,$(TESTS_RUN)),\
	    @+$(MAKE) --no-print-directory FAULTS=1 BUILD=$(BUILD)/faults build))

# What t/sanitize.t runs: what hostile bytes meet, with AddressSanitizer and
# UndefinedBehaviorSanitizer in it.  Of the tests' own programs only those.
SAN_TESTS  := rogue-worker rogue-worker-calls rogue-init broker-garbage \
              broker-hostile broker-init init-code-hostile
SAN_BUILD  := $(BUILD)/asan
HAVE_ASAN  := $(findstring /,$(shell gcc -print-file-name=libasan.so))

.PHONY: sanitized
sanitized:
	$(if $(SANITIZED),,$(if $(HAVE_ASAN),$(if $(filter t/sanitize.t,\
	    $(TESTS_RUN)),@+$(MAKE) --no-print-directory SANITIZE=1 \
	    BUILD=$(SAN_BUILD) build $(SAN_TESTS:%=$(SAN_BUILD)/t/core/%))))

# All that tests run, which may be built side by side; fuzz-replay is one.
.PHONY: test-builds
test-builds: tests faults sanitized

test: test-builds
	@$(TEST_ENV) PERL5LIB=$(ROOT)/t/lib prove --formatter=SandboxSummary -j$(JOBS) \
	    $(TESTS_RUN)

# The same where all controllers are cgroup v2's, in a virtual machine; where
# that is emulated everything takes ten times as long.
V2_SECONDS ?= 3600

test-v2: tests faults
	@$(TEST_ENV) SANDBOX_TEST_SLOW=8 SANDBOX_TEST_VM=1 \
	    t/lib/run-v2 -t $(V2_SECONDS) env PERL5LIB=$(ROOT)/t/lib \
	    prove --timer $(TESTS_RUN)

# The clock of the benchmarks.
MEASURE     := $(BUILD)/bench/measure
MEASURE_SRC := $(wildcard t/bench/lib/*.c)

$(MEASURE): $(MEASURE_SRC) t/bench/lib/measure.h $(LIB)
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(CORE_BASE) -O2 $(CORE_INCS) $(CORE_LINK) -o $@ $(MEASURE_SRC) \
	    $(LIB) $(CORE_LIBS)

bench: build $(MEASURE)
	@$(TEST_ENV) t/bench/run

# Everything at once for a long time, while processes are killed.
MINUTES    ?= 60

soak: build
	@$(TEST_ENV) t/soak/run --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) \
	    --json $(BUILD)/soak.json

include t/lib/check.mk


# ---- install --------------------------------------------------------------

MODULES_DIR   ?= /usr/lib/nginx/modules
HELPER_DIR    ?= /usr/lib/nginx/sandbox
AVAILABLE_DIR ?= /usr/share/nginx/modules-available
SNIPPETS_DIR  ?= /etc/nginx/snippets
SBIN_DIR      ?= /usr/sbin
TEMPLATE_DIR  ?= /usr/share/nginx-sandbox/templates
UNIT_DIR      ?= /lib/systemd/system
LOGROTATE_DIR ?= /etc/logrotate.d
DOC_DIR       ?= /usr/share/doc/nginx-sandbox
MAN_DIR       ?= /usr/share/man/man8
INCLUDE_DIR   ?= /usr/include/nginx-sandbox
LIB_DIR       ?= /usr/lib
PC_DIR        ?= $(LIB_DIR)/pkgconfig

# An included file's own includes are below the directory of nginx.conf.
IDENTITY      := $(wildcard conf/identity/*.conf)

INSTALL_DIRS   = $(MODULES_DIR) $(HELPER_DIR) $(AVAILABLE_DIR) \
                 $(SNIPPETS_DIR)/sandbox-identity $(SBIN_DIR) $(TEMPLATE_DIR) $(UNIT_DIR) \
                 $(LOGROTATE_DIR) $(DOC_DIR) $(INCLUDE_DIR) $(LIB_DIR) \
                 $(PC_DIR) $(DOC_DIR)/examples $(DOC_DIR)/plots $(MAN_DIR)

install: build
	install -d -m 0755 $(addprefix $(DESTDIR),$(INSTALL_DIRS))
	install -m 0644 $(MODULE) $(DESTDIR)$(MODULES_DIR)/
	install -m 0755 $(BUILD)/sandbox-broker $(BUILD)/sandbox-init \
	    $(BUILD)/sandbox-session $(BUILD)/sandbox-egress \
	    $(DESTDIR)$(HELPER_DIR)/
	rm -rf $(DESTDIR)$(HELPER_DIR)/kernels
	cp -r $(KERNELS) $(DESTDIR)$(HELPER_DIR)/kernels
	chmod -R u+w,go+rX,go-w $(DESTDIR)$(HELPER_DIR)/kernels
	install -m 0644 $(addprefix $(CORE)/include/sandbox_,session.h limits.h \
	    error.h) $(DESTDIR)$(INCLUDE_DIR)/
	install -m 0644 $(SESSION_LIB) $(DESTDIR)$(LIB_DIR)/
	sed -e 's|@VERSION@|$(VERSION)|' -e 's|@INCLUDE_DIR@|$(INCLUDE_DIR)|' \
	    -e 's|@LIB_DIR@|$(LIB_DIR)|' conf/sandbox-session.pc \
	    > $(DESTDIR)$(PC_DIR)/sandbox-session.pc
	chmod 0644 $(DESTDIR)$(PC_DIR)/sandbox-session.pc
	install -m 0644 $(wildcard docs/examples/*.c) \
	    $(DESTDIR)$(DOC_DIR)/examples/
	install -m 0755 $(BUILD)/sandboxctl $(DESTDIR)$(SBIN_DIR)/
	install -m 0644 conf/mod-http-sandbox.conf $(DESTDIR)$(AVAILABLE_DIR)/
	install -m 0644 conf/sandbox.conf conf/sandbox-log.conf \
	    conf/sandbox-errors.conf conf/sandbox-errors-e2b.conf \
	    $(DESTDIR)$(SNIPPETS_DIR)/
	for f in conf/sandbox-ports.conf $(IDENTITY); do \
	    to=$(DESTDIR)$(SNIPPETS_DIR)/$${f#conf/}; \
	    to=$${to/\/identity\//\/sandbox-identity\/}; \
	    sed 's|include sandbox-|include $(notdir $(SNIPPETS_DIR))/sandbox-|' \
	        $$f > $$to && chmod 0644 $$to \
	    || exit 1; \
	done
	install -m 0644 conf/sandbox-broker.service $(DESTDIR)$(UNIT_DIR)/
	install -m 0644 conf/logrotate $(DESTDIR)$(LOGROTATE_DIR)/nginx-sandbox
	install -m 0644 LICENSE conf/nginx.conf conf/nginx-delegate.conf \
	    $(filter-out %.8,$(wildcard docs/*.*)) $(DESTDIR)$(DOC_DIR)/
	for f in README.md SECURITY.md; do \
	    sed -E 's,\]\((docs|conf)/,](,g' $$f > $(DESTDIR)$(DOC_DIR)/$$f \
	        && chmod 0644 $(DESTDIR)$(DOC_DIR)/$$f || exit 1; \
	done
	install -m 0644 $(wildcard docs/plots/*) $(DESTDIR)$(DOC_DIR)/plots/
	install -m 0644 docs/sandboxctl.8 $(DESTDIR)$(MAN_DIR)/
	$(if $(wildcard conf/templates/*),\
	    cp -r conf/templates/. $(DESTDIR)$(TEMPLATE_DIR)/)

clean:
	rm -rf $(BUILD)
