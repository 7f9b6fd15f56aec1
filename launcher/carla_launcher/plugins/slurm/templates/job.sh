#!/bin/bash
# Written by `launch.py submit`. Goes on with the run by itself: after a step that was killed on the nodes that it has,
# after the time limit or a preemption as soon as it gets nodes again, until the run has ended.
{% for option in sbatch %}
#SBATCH {{ option }}
{% endfor %}

run={{ run|q }}
folder=$run/slurm
life=$folder/job-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}
python=({{ python|map("q")|join(" ") }})
up=({{ up|map("q")|join(" ") }})
words=({{ words|map("q")|join(" ") }})
step_options=(--ntasks=1 --nodes=1 ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"})
{% if gpus %}
IFS=, read -r -a cards <<<"${CUDA_VISIBLE_DEVICES:-0}"
up+=(--gpu "${cards[0]}${cards[1]:+,${cards[1]}}")  # the simulator's and the agent's
{% endif %}
export PYTHONUNBUFFERED=1

say() { printf 'job %s: %s\n' "$SLURM_JOB_ID" "$*" >&2; }

# What Slurm says now, as text; Python reads it, in a container too. Without a slurmdbd the second file is empty.
note() {
  scontrol --details show job "$SLURM_JOB_ID" >"$folder/job-$SLURM_JOB_ID.txt" 2>/dev/null
  sacct --jobs="$SLURM_JOB_ID" --duplicates --parsable2 --format={{ fields }} \
    >"$folder/job-$SLURM_JOB_ID-accounts.txt" 2>/dev/null
}

# SIGTERM is Slurm's warning, to this shell alone, or it ends the job: then every process has it, and KillWait is left.
on_term() {
  trap : TERM
  scontrol --details show job "$SLURM_JOB_ID" >"$life-signal.txt" || echo JobState=RUNNING >"$life-signal.txt"
  grep -q 'JobState=RUNNING' "$life-signal.txt" || return
  warned=yes
  say "warned: the agent writes its checkpoint"
  local until=$((SECONDS + {{ warn_s - 10 }}))
  # To the launcher alone: srun would have every process of the step have the signal. One that only begins is asked again.
  while kill -0 "$step" 2>/dev/null && ((SECONDS < until)); do
    timeout $((until - SECONDS)) "${python[@]}" -m carla_launcher down {{ name|q }} --runs-dir {{ runs|q }}
    sleep 1
  done
}
step='' warned=''
trap on_term TERM

{% if nodes > 1 %}
# Ray, closed to everybody without the token: its head on this node, which learns, and workers on the others.
address=$(scontrol show node "$SLURMD_NODENAME" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
port=$((20000 + SLURM_JOB_ID % 10000))
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$folder/ray-token RAY_USAGE_STATS_ENABLED=0
export RAY_worker_niceness=0  # by default collectors and simulators would give way to anything
[[ -s $RAY_AUTH_TOKEN_PATH ]] || (umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$RAY_AUTH_TOKEN_PATH")
ray=("${python[@]}" -m ray.scripts.scripts start --block --temp-dir="/tmp/ray-$SLURM_JOB_ID" --resources='{"carla": {{ carla }}}')
ray_head='' ray_workers=''
have_ray() {
  if ! kill -0 "$ray_head" 2>/dev/null; then
    srun --overlap --mem=0 --nodes=1 --ntasks=1 --relative=0 \
      "${ray[@]}" --head --port="$port" --node-ip-address="$address" --include-dashboard=false &
    ray_head=$!
  fi
  if ! kill -0 "$ray_workers" 2>/dev/null; then
    srun --overlap --mem=0 --no-kill --kill-on-bad-exit=0 --nodes={{ nodes - 1 }} --ntasks={{ nodes - 1 }} --relative=1 \
      "${ray[@]}" --address="$address:$port" &
    ray_workers=$!
  fi
}
step_options+=(--overlap --mem=0 --relative=0 env "RAY_ADDRESS=$address:$port")
{% endif %}
while true; do
{% if nodes > 1 %}
  have_ray
{% endif %}
  note
  code=75
  if [[ -z $warned ]]; then
    srun "${step_options[@]}" "${python[@]}" -m carla_launcher "${up[@]}" "${words[@]}" &
    step=$!
    wait "$step"
    while kill -0 "$step" 2>/dev/null; do wait "$step"; done  # a signal ends a wait
    wait "$step"
    code=$?
  fi
  note
  read -r next code < <("${python[@]}" -m carla_launcher.plugins.slurm "$run" "$code")
  case $next in
    again) sleep 2 ;;
    requeue)
      trap : TERM
      for _ in 1 2 3 4 5; do
        grep -q 'JobState=[^R]' "$folder/job-$SLURM_JOB_ID.txt" && exit 75  # cancelled meanwhile, or queued by Slurm
        scontrol requeue "$SLURM_JOB_ID" && exit 0
        sleep 10
        note
      done
      say "can't be queued again; go on with: sbatch $folder/job.sh"
      exit "$code"
      ;;
    *)
      "${python[@]}" -m carla_launcher report {{ name|q }} --runs-dir {{ runs|q }} >/dev/null  # it knows this end, too
      exit "${code:-70}"
      ;;
  esac
done
