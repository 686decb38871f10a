#!/bin/sh
# One comparison on several machines by GNU parallel: three blocks of rounds, one at a time on each
# machine of the list, which all see this directory. Without a list they run here, one by one.
#
#   examples/machines/parallel.sh -- ./old input -- ./new input
#   MACHINES=hosts.txt examples/machines/parallel.sh -- ./old input -- ./new input
set -eu
unherd=${UNHERD:-unherd}
blocks=3
"$unherd" compare --plan plan.json --blocks $blocks "$@"
parallel --will-cite --jobs 1 ${MACHINES:+--sshloginfile "$MACHINES" --workdir "$PWD"} \
    "$unherd" run-block {} --plan plan.json ">block-{}.txt" ::: $(seq $blocks)
"$unherd" merge $(seq --format 'plan-%.0f' $blocks)
