-- wrk asks for the paths of the file named by HEADRACE_BENCH_PATHS, one after the other.
local requests, next_index = {}, 0

function init()
  for path in io.lines(os.getenv("HEADRACE_BENCH_PATHS")) do
    requests[#requests + 1] = wrk.format("GET", path, {["Accept-Encoding"] = "gzip"})
  end
end

function request()
  next_index = next_index % #requests + 1
  return requests[next_index]
end

function done(summary)
  local errors = summary.errors
  print(string.format('{"objects": %d, "bytes": %d, "wall_s": %.6f, "errors": %d}',
    summary.requests, summary.bytes, summary.duration / 1e6,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
