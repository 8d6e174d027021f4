# SPDX-License-Identifier: MIT
# bash completion for uswap(1)

_uswap_jobs()
{
	uswap jobs 2>/dev/null | cut -d' ' -f1
}

_uswap_policies='queue plist-shared plist-percpu node fill weighted priority all none'

_uswap()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}
	local i words= policies='queue priority weighted fill node plist-shared plist-percpu'

	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ]; then
		words='run check stat swaps ps jobs set swapon swapoff bench help version'
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
		return
	fi
	if [ "$verb" = run ]; then
		# Behind the command the words are the command's.
		for ((i = 2; i < COMP_CWORD; i++)); do
			case ${COMP_WORDS[i]} in
			--)
				((i++))
				;;
			--ram | --swap | --order | --report | --queue-policy | --cpu-nodes | --tier | --allow-tiers)
				((i++))
				continue
				;;
			-*)
				continue
				;;
			esac
			if [ "$i" -lt "$COMP_CWORD" ]; then
				declare -F _command_offset >/dev/null && _command_offset "$i"
				return
			fi
		done
	fi
	case $prev in
	--job)
		mapfile -t COMPREPLY < <(compgen -W "$(_uswap_jobs)" -- "$cur")
		return
		;;
	--order)
		mapfile -t COMPREPLY < <(compgen -W 'auto 0 1 2 3 4 5 6 7 8 9' -- "$cur")
		return
		;;
	--device)
		mapfile -t COMPREPLY < <(compgen -W 'zram ram file:' -- "$cur")
		return
		;;
	--devices)
		[ "${COMP_WORDS[2]}" != swapoff ] || words='file ram zram'
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
		return
		;;
	--queue-policy)
		[ "$verb" != bench ] || policies=$_uswap_policies
		mapfile -t COMPREPLY < <(compgen -W "$policies" -- "$cur")
		return
		;;
	--tier | --allow-tiers | --cpu-nodes)
		return
		;;
	--swap)
		mapfile -t COMPREPLY < <(compgen -W 'zram file: dev:' -- "$cur")
		return
		;;
	--report)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	esac
	case $verb in
	run)
		words='--ram --swap --queue-policy --cpu-nodes --tier --allow-tiers --order --strict --report --verbose --quiet --help --'
		case $cur in
		-*) ;;
		*)
			mapfile -t COMPREPLY < <(compgen -c -- "$cur")
			return
			;;
		esac
		;;
	check)
		words='--json --help'
		;;
	stat)
		words='--job --json --help'
		;;
	swaps | ps)
		words='--job --help'
		;;
	set)
		words='--job --help ram= queue-policy= tier. pid.'
		;;
	swapon)
		words='--job --quiet --help zram file:'
		;;
	swapoff)
		words="--job --quiet --help $(uswap swaps 2>/dev/null | tail -n +2 | cut -d' ' -f1)"
		;;
	bench)
		case ${COMP_WORDS[2]} in
		thp)
			words='--aligned --small --iterations --seed --device --json --help'
			;;
		alloc)
			words='--full --order --cpus --rounds --pairs --queue-policy --devices --json --help'
			;;
		usemem)
			words='--queue-policy --runs --processes --size --ram --devices --nodes --depth --write --read --order --dir --json --help'
			;;
		swapoff)
			words='--devices --dir --order --size --rounds --threads --json --help'
			;;
		*)
			words='thp alloc swapoff usemem --help'
			;;
		esac
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

_uswap_sim()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=

	case $prev in
	--preset)
		words='measured epyc-2s xeon-2s'
		;;
	--load)
		words='kernel-build-2g kernel-build-3g'
		;;
	--queue-policy)
		words=$_uswap_policies
		;;
	--sweep)
		words='handoff'
		;;
	*)
		case $COMP_CWORD in
		1) words='bench --help --version' ;;
		2) words='alloc lock' ;;
		*)
			words='--cpus --preset --operations --json'
			if [ "${COMP_WORDS[2]}" = alloc ]; then
				words+=' --load --work --outside --large --order --queue-policy'
				words+=' --devices --full --handoff --sweep'
			else
				words+=' --hold --between'
			fi
			;;
		esac
		;;
	esac
	COMPREPLY=()
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _uswap uswap
complete -F _uswap_sim uswap-sim
