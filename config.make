# Read by nginx's auto/make once the makefile is there: "make modules" (or
# "make") builds the core's archive and programs too.

sandbox_build=${SANDBOX_BUILD:-$ngx_addon_dir/build}
sandbox_make="\$(MAKE) --no-print-directory -C $ngx_addon_dir"
sandbox_make="$sandbox_make BUILD=$sandbox_build"

case " $DYNAMIC_ADDONS " in

    *" $ngx_addon_dir "*)
        sandbox_target=$NGX_OBJS/ngx_http_sandbox_module.so
        sandbox_goal=modules
    ;;

    *)
        sandbox_target=$NGX_OBJS/nginx
        sandbox_goal=build
    ;;

esac

cat << END >> $NGX_MAKEFILE

.PHONY:	sandbox_core_always

$sandbox_build/libsandbox_core.a:	sandbox_core_always
	+$sandbox_make core

$sandbox_target:	$sandbox_build/libsandbox_core.a

$sandbox_goal:	$sandbox_build/libsandbox_core.a

END
