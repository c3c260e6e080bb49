# The kernels as they are served: copies below $(BUILD)/kernels, and what each
# prepares beside them once, outside sessions.  A language is a directory
# below sandbox_core/kernels; nothing here knows which there are.

KERNELS_SRC  := $(CORE)/kernels
KERNELS      := $(BUILD)/kernels
KERNEL_FILES := $(sort $(shell find $(KERNELS_SRC) -mindepth 2 -type f \
                  ! -path '*/__pycache__/*' ! -name prepare))
KERNEL_HOOKS := $(sort $(wildcard $(KERNELS_SRC)/*/prepare))

core: kernels

$(BUILD)/kernels.list: FORCE
	$(call keep,$(KERNEL_FILES))

# In place, as sessions may have the directories mounted.
$(BUILD)/kernels.done: $(KERNEL_FILES) $(BUILD)/kernels.list
	$(call say,COPY,$(KERNELS))
	@for f in $(KERNEL_FILES:$(KERNELS_SRC)/%=%); do \
	    mkdir -p $(KERNELS)/$${f%/*} || exit 1; \
	    cp --preserve=mode $(KERNELS_SRC)/$$f $(KERNELS)/$$f.new \
	        && mv $(KERNELS)/$$f.new $(KERNELS)/$$f || exit 1; \
	done
	@cd $(KERNELS) && find . -type f ! -path '*/cache/*' \
	    ! -path '*/__pycache__/*' -printf '%P\n' \
	    | grep -vxF $(KERNEL_FILES:$(KERNELS_SRC)/%=-e %) | xargs -r rm -f
	@chmod -R u+w,go+rX,go-w $(KERNELS)
	@touch $@

# Each sees for itself whether what it made is as old as what it was made of.
.PHONY: kernels
kernels: $(BUILD)/kernels.done
	$(Q)for hook in $(KERNEL_HOOKS:$(KERNELS_SRC)/%=%); do \
	    $(KERNELS_SRC)/$$hook $(KERNELS)/$${hook%/*} || exit 1; \
	done
