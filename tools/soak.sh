#!/usr/bin/env bash
# Long campaigns; every length comes from the environment.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
FUZZ_SEED=0 tools/fuzz.sh "${SOAK_FUZZ_S:-600}"
HEADRACE_EXAMPLES=${SOAK_EXAMPLES:-500} .venv/bin/python -m pytest tests --timeout=0 -m "hypothesis and not soak" "$@"
HEADRACE_PROCESS_CYCLES=${SOAK_FORKS:-10000} \
  .venv/bin/python -m pytest tests/process --timeout=0 -m "soak or not soak" "$@"
.venv/bin/python -m pytest tests testing --ignore=tests/process --timeout=0 -m soak "$@"
.venv/bin/python -m pytest tests/io/test_minio.py "$@"
# The main job on S3; .ci/run has it in a folder and on gs://.
tools/demo.sh s3 --plot build/demo-s3.png
# dataflux's own tests, where a clone of it (with its submodule) is given.
if [[ -n ${SOAK_DATAFLUX:-} ]]; then
  .venv/bin/python -m tests.compat.run_upstream_tests "$SOAK_DATAFLUX"
else
  echo "dataflux's own tests are not run: SOAK_DATAFLUX=FOLDER names a clone of GoogleCloudPlatform/dataflux-pytorch"
fi
# The million samples of AIStore's blog, once.
tools/bench.sh --soak --only published-million --json build/soak-million.json
# All faults at all requests of all ways to save: -1 is all of them.
.venv/bin/python -m tests.campaigns --jobs "${SOAK_JOBS:-$(nproc)}" \
  --faults "${SOAK_FAULTS:--1}" --kills "${SOAK_KILLS:-50}" --flips "${SOAK_FLIPS:-10000}"
