#!/bin/bash
# Written by `carla-launcher submit`. Resumes the run until it has finished: on the same nodes after a step that was
# killed, and on new nodes after the time limit or a preemption.
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
export PYTHONUNBUFFERED=1 CARLA_SLURM_RUN=$run

say() { printf 'job %s: %s\n' "$SLURM_JOB_ID" "$*" >&2; }

# Saves the job's state in Slurm as text, for Python, which may run in a container. Without slurmdbd the second is empty.
note() {
  scontrol --details show job "$SLURM_JOB_ID" >"$folder/job-$SLURM_JOB_ID.txt" 2>/dev/null
  sacct --jobs="$SLURM_JOB_ID" --duplicates --parsable2 --format={{ fields }} \
    >"$folder/job-$SLURM_JOB_ID-accounts.txt" 2>/dev/null
}

# SIGTERM is Slurm's warning to this shell only, or the end of the job: then all processes get it, with KillWait left.
on_term() {
  trap : TERM
  scontrol --details show job "$SLURM_JOB_ID" >"$life-signal.txt" || echo JobState=RUNNING >"$life-signal.txt"
  grep -q 'JobState=RUNNING' "$life-signal.txt" || return
  warned=yes
  say "Slurm's warning: the agent writes its checkpoint"
  local until=$((SECONDS + {{ warn_s - 10 }}))
  # Only to the launcher, since srun would signal every process of the step. A launcher that is starting is asked again.
  while kill -0 "$step" 2>/dev/null && ((SECONDS < until)); do
    timeout $((until - SECONDS)) "${python[@]}" -m carla_launcher down {{ name|q }} --runs-dir {{ runs|q }}
    sleep 1
  done
}
step='' warned=''
trap on_term TERM

{% if nodes > 1 %}
# Ray, which requires the token: its head on this node, where the learner runs, and workers on the others.
address=$(scontrol show node "$SLURMD_NODENAME" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
port=$((20000 + SLURM_JOB_ID % 10000))
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$folder/ray-token RAY_USAGE_STATS_ENABLED=0
export RAY_worker_niceness=0  # by default collectors and simulators would have a low priority
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
      say "can't be queued again; resume with: sbatch $folder/job.sh"
      exit "$code"
      ;;
    *)
      "${python[@]}" -m carla_launcher report {{ name|q }} --runs-dir {{ runs|q }} >/dev/null  # with this end
      exit "${code:-70}"
      ;;
  esac
done
