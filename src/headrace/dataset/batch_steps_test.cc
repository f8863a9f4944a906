#include "headrace/dataset/batch_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Positions = std::vector<uint64_t>;
using Step = std::vector<Positions>;

struct Place {
  uint64_t position = 0;
  Positions waiting = {};
};

// Steps of an order of samples with these costs, from a place on.
class Dealing {
 public:
  Dealing(const std::vector<double>& costs, BatchRules rules, StepRules steps,
          const Place& from = {})
      : costs_(costs), steps_(std::move(rules), steps, costs.size(), from.position) {
    for (const uint64_t at : from.waiting) {
      steps_.add_waiting({.position = at, .weight = {.cost = costs[at]}});
    }
  }

  // The next step; none at the end. `place` is then behind it.
  std::optional<Step> next(Place& place) {
    while (!steps_.is_ready()) steps_.add({.cost = costs_[steps_.position()]});
    std::optional<BatchStep> step = steps_.next();
    if (!step) return {};
    place = {.position = step->position, .waiting = step->waiting};
    std::ranges::sort(place.waiting);
    Step out;
    for (const auto& batch : step->batches) {
      out.emplace_back();
      for (const BatchEntry& entry : batch) out.back().push_back(entry.position);
    }
    return out;
  }

  std::vector<Step> rest() {
    std::vector<Step> out;
    Place place;
    while (std::optional<Step> step = next(place)) out.push_back(std::move(*step));
    return out;
  }

 private:
  const std::vector<double>& costs_;
  BatchSteps steps_;
};

std::vector<Step> all_steps(const std::vector<double>& costs, BatchRules rules, StepRules steps) {
  return Dealing(costs, std::move(rules), steps).rest();
}

TEST(BatchSteps, DealTheBatchesInTurn) {
  EXPECT_THAT(all_steps({2, 2, 2, 2, 2, 2, 2, 2}, {.max_cost = 4}, {.world_size = 2}),
              ElementsAre(Step{{0, 1}, {2, 3}}, Step{{4, 5}, {6, 7}}));
}

TEST(BatchSteps, HalveTheDearestBatchesOfTheLastStep) {
  EXPECT_THAT(all_steps({10, 1, 1, 1, 1, 6}, {.max_cost = 20}, {.world_size = 2}),
              ElementsAre(Step{{0}, {1, 2, 3, 4, 5}}));
}

TEST(BatchSteps, LeaveASampleForEachRankOfTheLastStep) {
  EXPECT_THAT(all_steps({1, 1, 1, 1, 1, 1, 1}, {.max_cost = 3}, {.world_size = 2}),
              ElementsAre(Step{{0, 1, 2}, {3, 4}}, Step{{5}, {6}}));
}

TEST(BatchSteps, LeaveOutSamplesThatAreTooFewForAStep) {
  EXPECT_THAT(all_steps({1, 1, 1}, {.max_cost = 1}, {.world_size = 2}),
              ElementsAre(Step{{0}, {1}}));
  EXPECT_THAT(all_steps({1}, {.max_cost = 1}, {.world_size = 2}), IsEmpty());
}

TEST(BatchSteps, DropLastKeepsBatchesFilledToMoreThanTheSaturation) {
  const std::vector<double> costs{5, 5, 5, 5, 4};
  EXPECT_EQ(all_steps(costs, {.max_cost = 10}, {.drop_last = true}).size(), 2U);
  EXPECT_EQ(all_steps(costs, {.max_cost = 10}, {.drop_last = true, .saturation = 0.4}).size(), 2U);
  EXPECT_EQ(all_steps(costs, {.max_cost = 10}, {.drop_last = true, .saturation = 0.3}).size(), 3U);
}

TEST(BatchSteps, TellWhichSamplesWaitInOtherBands) {
  const std::vector<double> costs{1, 9, 1, 9, 9};
  Dealing run(costs, {.max_samples = 2, .boundaries = {5}}, {});
  Place place;
  EXPECT_EQ(run.next(place), (Step{{0, 2}}));
  EXPECT_EQ(place.position, 3U);
  EXPECT_THAT(place.waiting, ElementsAre(1));
  EXPECT_EQ(run.next(place), (Step{{1, 3}}));
  EXPECT_THAT(place.waiting, IsEmpty());
}

// Any rules, and costs from 0 to 11.
struct Case {
  explicit Case(std::mt19937_64& random) {
    costs.resize(random() % 50);
    for (double& cost : costs) cost = static_cast<double>(random() % 12);
    vary(random);
  }
  void vary(std::mt19937_64& random) {
    rules = {.max_cost = 1.0 + static_cast<double>(random() % 30), .max_samples = 1 + random() % 8};
    if (random() % 2 == 0) rules.boundaries = {3, 6};
    steps.world_size = 1 + random() % 5;
  }
  std::vector<double> costs;
  BatchRules rules;
  StepRules steps;
};

TEST(BatchSteps, GoOnFromThePlaceBehindAnyStep) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 500; ++round) {
    Case each(random);
    if (round % 3 == 0) each.rules.oversized = Oversized::kLeftOut;
    each.steps.drop_last = round % 5 == 0;
    each.steps.saturation = 0.5;
    const std::vector<Step> whole = all_steps(each.costs, each.rules, each.steps);
    Dealing run(each.costs, each.rules, each.steps);
    Place place;
    for (size_t done = 1; run.next(place); ++done) {
      EXPECT_EQ(Dealing(each.costs, each.rules, each.steps, place).rest(),
                std::vector<Step>(whole.begin() + static_cast<std::ptrdiff_t>(done), whole.end()));
    }
  }
}

TEST(BatchSteps, HaveEachSampleOnceAlsoIfRulesAndRanksChange) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 500; ++round) {
    Case each(random);
    std::map<uint64_t, int> seen;
    Place place;
    for (int changes = 0; changes < 5; ++changes) {
      each.vary(random);
      Dealing run(each.costs, each.rules, each.steps, place);
      for (uint64_t steps = changes == 4 ? 1000 : random() % 4; steps > 0; --steps) {
        const std::optional<Step> step = run.next(place);
        if (!step) break;
        ASSERT_EQ(step->size(), each.steps.world_size);
        for (const Positions& batch : *step) {
          EXPECT_FALSE(batch.empty());
          for (const uint64_t at : batch) EXPECT_EQ(++seen[at], 1);
        }
      }
    }
    EXPECT_LT(each.costs.size() - seen.size(), each.steps.world_size);
  }
}

}  // namespace
}  // namespace headrace
