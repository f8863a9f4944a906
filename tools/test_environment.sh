# Sourced by the scripts that run tests: where the servers are, and what the sanitizers do.
export HEADRACE_FAKE_GCS_SERVER=${HEADRACE_FAKE_GCS_SERVER:-$PWD/build/servers/fake-gcs-server}
export HEADRACE_AISNODE=${HEADRACE_AISNODE:-$PWD/build/servers/aisnode}
export HEADRACE_MINIO=${HEADRACE_MINIO:-$PWD/build/servers/minio}
export HEADRACE_VERSITYGW=${HEADRACE_VERSITYGW:-$PWD/build/servers/versitygw}
export HEADRACE_FAULTSERVER=${HEADRACE_FAULTSERVER:-$PWD/build/release/testing/faultserver/headrace-faultserver}
if ! symbolizer=$(command -v llvm-symbolizer-19); then symbolizer=; fi
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_init_order=1:external_symbolizer_path=$symbolizer
export UBSAN_OPTIONS=print_stacktrace=1:external_symbolizer_path=$symbolizer
export TSAN_OPTIONS=suppressions=$PWD/tools/tsan.suppressions:halt_on_error=1:second_deadlock_stack=1:external_symbolizer_path=$symbolizer
# A test must not find this machine's own accounts, proxies or emulators.
unset GOOGLE_APPLICATION_CREDENTIALS STORAGE_EMULATOR_HOST ${!AWS_@} ${!AIS_@} http_proxy https_proxy no_proxy \
  HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY all_proxy
# Each of the many interpreters would compile torch anew, which takes twice as long as to load it.
unset PYTHONDONTWRITEBYTECODE
