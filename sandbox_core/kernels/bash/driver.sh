# The bash kernel: frames on descriptor 3, as kernels/README.md has them.
# Cells are evaluated in this very shell, at its top level: what they leave
# behind is the context's.
#
# Whatever ends a shell (exit, set -e, an interrupt, break outside a loop)
# comes to the EXIT trap.  There the shell writes down what it is and executes
# itself again: the same process, with the same descriptors, directory and
# children, which takes up its variables, functions, aliases, options and
# traps.  What it cannot take over are its tables of jobs and directories.
#
# While the loop below runs, its "3>&-" makes bash keep descriptor 3 as a copy
# that is closed on exec, the lowest that is free from 10 on: no program that
# a cell starts has it.
#
# All names here begin with __sbx_, but for "trap".


# One line, so that a cell's first line is line 1.  The braces hide from set -x
# what is not the cell's.

__sbx_loop='while
{ builtin set +euxvET; builtin trap - DEBUG ERR; } 2>/dev/null; do
__sbx_step;
builtin eval "$__sbx_code";
{ __sbx_status=$? __sbx_flags=$-; builtin trap - DEBUG ERR $__sbx_none;
builtin set +euxvET; builtin trap "" INT; } 2>/dev/null;
done 3>&-; builtin exit'
__sbx_loop=${__sbx_loop//$'\n'/ }

__sbx_at_exit='{ __sbx_status=$? __sbx_flags=$-;
builtin trap - DEBUG ERR $__sbx_none;
builtin set +euxvET; builtin trap "" INT;
((${#FUNCNAME[@]})) || __sbx_args=("$@"); } 2>/dev/null; __sbx_again'

__sbx_interrupt='__sbx_ended=interrupt; builtin exit 130'


__sbx_send() {
    builtin printf '%s %d\n%s' "$1" "${#2}" "$2" >&"$__sbx_fd"
}


# name and value of a field, appended to __sbx_body.  ASCII alone.

__sbx_field() {
    __sbx_body+="$1 ${#2}"$'\n'"$2"$'\n'
}


__sbx_ready() {
    __sbx_body=
    __sbx_field version "$BASH_VERSION"
    __sbx_send ready "$__sbx_body"
}


__sbx_run_end() {
    __sbx_give_back

    if [[ $__sbx_ended == interrupt ]]; then
        __sbx_body=
        __sbx_field id "$__sbx_id"
        __sbx_field name KeyboardInterrupt
        __sbx_field value ''
        __sbx_field traceback KeyboardInterrupt
        __sbx_send error "$__sbx_body"
    fi

    __sbx_body=
    __sbx_field id "$__sbx_id"
    __sbx_field exit "$__sbx_status"
    __sbx_id= __sbx_ended=
    __sbx_send end "$__sbx_body"
}


# A variable of the session, or with "lend" of one run: what it was is kept.

__sbx_set() {
    local __sbx_name=${2%%=*} __sbx_value=${2#*=} __sbx_was=unset

    if [[ ! $__sbx_name =~ ^[a-zA-Z_][a-zA-Z0-9_]*$
          || $__sbx_name == __sbx_* ]]
    then
        return
    fi

    if [[ $1 == lend ]]; then
        if [[ -v $__sbx_name ]]; then
            __sbx_was=${!__sbx_name@a}-
        fi

        __sbx_lent+=("$__sbx_name" "$__sbx_value" "$__sbx_was"
                     "${!__sbx_name-}")
    fi

    builtin export "$__sbx_name=$__sbx_value"
} 2>/dev/null


__sbx_give_back() {
    local __sbx_i __sbx_name

    for ((__sbx_i = ${#__sbx_lent[@]} - 4; __sbx_i >= 0; __sbx_i -= 4)); do
        __sbx_name=${__sbx_lent[__sbx_i]}

        if [[ ${!__sbx_name-} != "${__sbx_lent[__sbx_i + 1]}" ]]; then
            continue                    # the cell's own now
        fi

        case ${__sbx_lent[__sbx_i + 2]} in
        unset)
            builtin unset -v "$__sbx_name"
            ;;
        *x*)
            builtin export "$__sbx_name=${__sbx_lent[__sbx_i + 3]}"
            ;;
        *)
            builtin declare -g +x "$__sbx_name=${__sbx_lent[__sbx_i + 3]}"
            ;;
        esac
    done

    __sbx_lent=()
} 2>/dev/null


# The next frame: into __sbx_type, __sbx_id, __sbx_code and __sbx_vars.

__sbx_next() {
    local size name length value LC_ALL=C

    __sbx_code= __sbx_vars=()
    IFS=' ' builtin read -r -u "$__sbx_fd" __sbx_type size || __sbx_quit EOF

    while ((size > 0)); do
        IFS=' ' builtin read -r -u "$__sbx_fd" name length || __sbx_quit EOF
        value=

        if ((length > 0)); then
            IFS= builtin read -r -N "$length" -u "$__sbx_fd" value \
                || __sbx_quit EOF
        fi

        builtin read -r -N 1 -u "$__sbx_fd" || __sbx_quit EOF
        ((size -= ${#name} + ${#length} + length + 3))

        case $__sbx_type.$name in
        run.id)
            __sbx_id=$value
            ;;
        run.code)
            __sbx_code=$value
            ;;
        run.env | setup.env)
            __sbx_vars+=("$value")
            ;;
        setup.cwd)
            builtin cd -- "$value" 2>/dev/null
            ;;
        esac
    done
}


# Ends a run, and leaves the next one's code to be evaluated.

__sbx_step() {
    local value

    if [[ $__sbx_begun ]]; then
        __sbx_options=${__sbx_flags//[^euxvET]/}
    fi

    if [[ $__sbx_unready ]]; then
        __sbx_unready=
        __sbx_ready
    fi

    if [[ $__sbx_ended ]]; then
        __sbx_status=$__sbx_exit
    fi

    if [[ $__sbx_id ]]; then
        if [[ $__sbx_onexit && $__sbx_ended ]]; then
            # now the cell's own trap runs, and may exit too
            __sbx_code=$__sbx_onexit
            __sbx_onexit=
            return "$__sbx_status"
        fi

        __sbx_run_end
        __sbx_last=$__sbx_status
    fi

    for ((;;)); do
        __sbx_next

        case $__sbx_type in
        setup)
            for value in "${__sbx_vars[@]}"; do
                __sbx_set keep "$value"
            done

            __sbx_ready
            ;;
        run)
            break
            ;;
        esac
    done

    for value in "${__sbx_vars[@]}"; do
        __sbx_set lend "$value"
    done

    # what is put before the code is on its first line
    value=

    if [[ $__sbx_ondebug ]]; then
        value+='builtin trap -- "$__sbx_ondebug" DEBUG; '
    fi

    if [[ $__sbx_onerr ]]; then
        value+='builtin trap -- "$__sbx_onerr" ERR; '
    fi

    __sbx_begun=1

    if [[ $__sbx_options ]]; then
        __sbx_begun=
        value+='__sbx_begun=1; builtin set "-$__sbx_options"; '
    fi

    # what a run that skips its end with "continue" leaves
    __sbx_status=0 __sbx_flags=$__sbx_options

    __sbx_code=$value$__sbx_code
    builtin trap -- "$__sbx_onint" INT

    return "$__sbx_last"
}


# The kernel's own end.

__sbx_quit() {
    builtin trap - EXIT TERM

    if [[ $1 == TERM ]]; then
        builtin kill -TERM $$
    fi

    builtin eval "$__sbx_onexit"
    builtin exit 0
}


# The shell's end: the run's, not the kernel's.

__sbx_again() {
    local __sbx_dump __sbx_traps

    if [[ ! -S /dev/fd/$__sbx_fd ]]; then
        __sbx_fd=3                      # the loop has been left
    fi

    # copies above 2 keep that they are closed on exec
    { builtin exec {__sbx_fd}>&1; } >&"$__sbx_fd"

    : "${__sbx_ended:=exit}"
    __sbx_exit=$__sbx_status

    if [[ $__sbx_begun ]]; then
        __sbx_options=${__sbx_flags//[^euxvET]/}
        __sbx_begun=
    fi

    if [[ $__sbx_id && ! $__sbx_onexit ]]; then
        # before the new shell: no further SIGINT comes while it starts
        __sbx_run_end
        __sbx_last=$__sbx_status
    fi

    # patterns of functions need shopt's, and no alias may touch their text
    __sbx_dump=$(
        builtin echo 'exec {__sbx_state}<&-'
        builtin shopt -p
        builtin declare -f
        builtin declare -F
        builtin declare -p
        builtin alias -p
        builtin set +o
    ) 2>/dev/null

    # not by the function of that name
    __sbx_traps=$'\n'$(builtin trap -p)
    __sbx_dump+=${__sbx_traps//$'\n'trap --/$'\n'builtin trap --}

    builtin exec {__sbx_state}<<<"$__sbx_dump" || builtin kill -KILL $$

    # ignored, it could never be caught again
    builtin trap : INT

    builtin exec "$BASH" --noprofile --norc -c \
        'builtin trap "" INT; . "$1"; builtin eval "$__sbx_loop"' \
        bash "$__sbx_path" "$__sbx_state" 3<&"$__sbx_fd"-
}


# Traps that the driver has a part in: kept, and set while a cell runs.

trap() {
    if [[ $BASHPID != "$$" ]]; then
        builtin trap "$@"
        return
    fi

    local __sbx_action=- __sbx_name __sbx_others=()

    if [[ ${1--p} == -[lp]* ]]; then
        __sbx_told "$@"
        return
    fi

    if [[ $1 == -- ]]; then
        builtin shift
    fi

    if (($# > 1)); then
        __sbx_action=$1
        builtin shift
    fi

    for __sbx_name; do
        case $__sbx_name in
        0 | EXIT | exit)
            __sbx_onexit=${__sbx_action#-}
            ;;
        2 | INT | int | SIGINT | sigint)
            __sbx_onint=$__sbx_action
            [[ $__sbx_action == - ]] && __sbx_onint=$__sbx_interrupt
            builtin trap -- "$__sbx_onint" INT
            ;;
        ERR | err)
            __sbx_onerr=${__sbx_action#-}
            builtin trap -- "$__sbx_action" ERR
            ;;
        DEBUG | debug)
            __sbx_ondebug=${__sbx_action#-}

            if [[ $__sbx_ondebug ]]; then
                __sbx_ondebug='[[ $BASH_COMMAND == *__sbx_* ]] || {'
                __sbx_ondebug+=" $__sbx_action"$'\n}'
            fi
            ;;
        RETURN | return)
            [[ $__sbx_action == - ]] || __sbx_action='[[ ${FUNCNAME-} == trap
                ]] || {'" $__sbx_action"$'\n}'
            builtin trap -- "$__sbx_action" RETURN
            ;;
        *)
            __sbx_others+=("$__sbx_name")
            ;;
        esac
    done

    if ((${#__sbx_others[@]})); then
        builtin trap -- "$__sbx_action" "${__sbx_others[@]}" || return
    fi

    builtin trap -- "${__sbx_ondebug:--}" DEBUG
}


# trap -p of the user's own

__sbx_told() {
    local line

    if [[ ${1-} == -l* ]]; then
        builtin trap -l
        return
    fi

    builtin shift
    builtin set -- " $* "

    if [[ $__sbx_onexit && $1 == @(*' EXIT '*|*' 0 '*|'  ') ]]; then
        builtin printf "trap -- %s EXIT\n" "${__sbx_onexit@Q}"
    fi

    if [[ $__sbx_onint != "$__sbx_interrupt"
          && $1 == @(*'INT '*|*' 2 '*|'  ') ]]
    then
        builtin printf "trap -- %s SIGINT\n" "${__sbx_onint@Q}"
    fi

    while IFS= builtin read -r line; do
        case $line in
        *__sbx_* | 'builtin trap - DEBUG'*) ;;
        *) builtin printf '%s\n' "$line" ;;
        esac
    done < <(builtin trap -p)
}


# ---- start ----------------------------------------------------------------

__sbx_path=$1
__sbx_id=
__sbx_begun=
__sbx_code=
__sbx_ended=
__sbx_last=0
__sbx_lent=()
__sbx_onint=$__sbx_interrupt
__sbx_args=()
__sbx_exit=0
__sbx_unready=
__sbx_ondebug=
__sbx_onerr=
__sbx_onexit=
__sbx_options=
__sbx_none=
__sbx_status=0
__sbx_flags=

if (($# > 1)); then
    __sbx_state=$2
    . "/dev/fd/$2" &>/dev/null
    builtin set -- "${__sbx_args[@]}"

else
    __sbx_unready=1
    builtin shopt -s execfail
    builtin set --
fi

for ((__sbx_fd = 10;; __sbx_fd++)); do
    if [[ ! -e /dev/fd/$__sbx_fd ]]; then
        break
    fi
done

builtin trap -- "$__sbx_at_exit" EXIT
builtin trap '__sbx_quit TERM' TERM
