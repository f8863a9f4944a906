// Which of two ways to read a batch is the faster one.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace headrace {

enum class FetchWay : uint8_t {
  kAlone,     // a request for each object
  kTogether,  // one request for many
};

// Measures both ways on one host, and chooses the one that gets more done in the time in which it
// is in use. Sizes matter: what saves a round trip for each small object may be slower than many
// connections for large ones, so that batches are told apart by the mean size of their objects.
//
// A way is measured while no batch goes the other way. It begins with a trial of both; from then on
// the slower one is tried again now and then, which takes a small part of the time. During a trial
// few batches are in progress, so that read-ahead is not all sent the slower way: holds_back() says
// so of those that nobody waits for. A trial ends with its measurement, or after a few batches
// without one: batches that overlap without end may leave no moment for it.
// Pure: time is an argument. Thread: confined.
class FetchChoice {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // What a batch wants.
  struct Load {
    uint64_t object_count = 0, size_bytes = 0;
  };
  // A batch in progress.
  struct Ticket {
    FetchWay way = FetchWay::kAlone;
    size_t size_class = 0;
    uint64_t object_count = 0;
    double work = 0;
    uint64_t run = 0;    // 0: in none
    uint64_t trial = 0;  // 0: none
  };

  // Whether a trial has as many batches as it needs, so that read-ahead should begin later. Never
  // of a batch that would be the only one in progress.
  bool holds_back(const Load& load) const;
  // The way that a batch would go, if that is known and nothing is to be tried.
  std::optional<FetchWay> settled(const Load& load, TimePoint now) const;
  // Chooses the way of a batch that begins now. end() must follow.
  Ticket begin(const Load& load, TimePoint now);
  // It has ended. `failed`: what it took says nothing.
  void end(const Ticket& ticket, bool failed, TimePoint now);

  // What was measured, in work a second; none: nothing yet. One object of no size is as much work
  // as kObjectBytes of a larger one.
  std::optional<double> measured(FetchWay way, const Load& load) const;

  // The least time and batches that a measurement takes, unless all batches are done before.
  static constexpr std::chrono::milliseconds kLeastRun{250};
  static constexpr uint32_t kLeastBatches = 2;
  // The batches that may fail to count before a trial ends without a measurement, besides those
  // that were in progress when it began.
  static constexpr uint64_t kMostUnmeasured = 8;
  // No more begin during a trial than make up for both.
  static constexpr uint64_t kTrialBatches = 4;
  static constexpr uint64_t kTrialObjects = 256;
  // The other way is tried again after at least so long, or so many times as long as that takes,
  // ...
  static constexpr std::chrono::seconds kLeastBetweenTrials{10};
  static constexpr double kTimesTrial = 20;
  // ... twice as long after each trial that it has lost, up to ...
  static constexpr std::chrono::seconds kMostBetweenTrials{600};
  // It must be better by this much to be taken instead.
  static constexpr double kBetter = 1.1;
  static constexpr uint64_t kObjectBytes = 16 * 1024;

 private:
  // Up to 1 KiB, 4 KiB, ... a object.
  static constexpr size_t kClassCount = 10;
  struct Measured {
    double work_per_s = 0;
    uint32_t count = 0;
    TimePoint at = {};
  };
  struct SizeClass {
    std::array<Measured, 2> ways;
    FetchWay chosen = FetchWay::kTogether;
    std::optional<FetchWay> trial;
    // Of the trial:
    uint64_t number = 0, batches = 0, objects = 0;  // in progress
    uint64_t unmeasured_batches = 0, most_unmeasured = 0;
    TimePoint next_trial = {};
    std::chrono::duration<double> between_trials = kLeastBetweenTrials;
  };
  // A time in which all that is in progress goes one way.
  struct Run {
    uint64_t number = 0;
    bool active = false;
    FetchWay way = FetchWay::kAlone;
    TimePoint since = {};
    std::array<double, kClassCount> work{};  // that has been done, by size
    uint32_t batches = 0;
  };

  static size_t class_of(const Load& load);
  // The way to be tried now, besides those that are.
  static std::optional<FetchWay> to_try(const SizeClass& of, TimePoint now);
  FetchWay choose(SizeClass& of, double work, TimePoint now);
  void begin_trial(SizeClass& of, FetchWay way);
  void begin_run(FetchWay way, TimePoint now);
  void take_measurement(TimePoint now);
  void settle(SizeClass& of, double work, TimePoint now);

  std::array<SizeClass, kClassCount> classes_;
  std::array<uint64_t, 2> in_progress_{};
  Run run_;
};

}  // namespace headrace
