#include "headrace/store/reading/stat_many.h"

#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using Answers = std::vector<Result<ObjectInfo>>;

class StatManyTest : public StoreTest {
 protected:
  StatManyTest() {
    for (size_t i = 0; i < 50; ++i) {
      objects_.push_back(server_.put("o" + std::to_string(i), std::string(i, 'x')));
      names_.push_back(objects_.back().name);
    }
  }
  Answers ask(std::vector<std::string> names, bool missing_ok, size_t max_in_flight = 8) {
    return take(stat_many(open(), std::move(names), missing_ok, max_in_flight)).value();
  }

  std::vector<ObjectInfo> objects_;
  std::vector<std::string> names_;
};

TEST_F(StatManyTest, AnswersInTheOrderOfTheNames) {
  for (const size_t max_in_flight : {0u, 1u, 7u, 1000u}) {
    const Answers answers = ask(names_, false, max_in_flight);
    ASSERT_EQ(answers.size(), names_.size());
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(answers[i].value().name, names_[i]);
      EXPECT_EQ(answers[i].value().size_bytes, i);
    }
  }
  EXPECT_TRUE(ask({}, false).empty());
}

TEST_F(StatManyTest, HasNoMoreUnderWayThanItMay) {
  // What is more is answered by 429, and counted.
  server_.post("limit", R"({"in_flight": 3})");
  ask(names_, false, 3);
  EXPECT_EQ(server_.stat("/by_kind/get"), 50u);
  EXPECT_EQ(server_.stat("/by_status/429"), 0u);
}

TEST_F(StatManyTest, GoesOnWhereAnObjectMayBeMissing) {
  const Answers answers = ask({"o1", "none", "o2"}, true);
  EXPECT_TRUE(answers[0].has_value());
  EXPECT_EQ(answers[1].error().code(), Code::kNotFound);
  EXPECT_TRUE(answers[2].has_value());
}

TEST_F(StatManyTest, EndsWithTheFirstError) {
  std::vector<std::string> names = {"none"};
  names.insert(names.end(), names_.begin(), names_.end());
  const Answers answers = ask(names, false, 1);
  EXPECT_EQ(answers[0].error().code(), Code::kNotFound);
  for (size_t i = 1; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].error().code(), Code::kCancelled);
  }
  EXPECT_EQ(server_.stat("/by_kind/get"), 1u);
}

TEST_F(StatManyTest, IsCancelled) {
  server_.faults(R"([{"match": {"kind": "get"}, "action": {"stall_head": true}}])");
  const auto pending = stat_many(open(), names_, false, 8);
  server_.wait_for("/by_kind/get", 8);
  pending->cancel();
  for (const Result<ObjectInfo>& each : take(pending).value()) {
    EXPECT_EQ(each.error().code(), Code::kCancelled);
  }
}

// As many answers as there are names come at once, on the thread that asks.
TEST_F(StatManyTest, EndsWithTheEngine) {
  const std::shared_ptr<ObjectStore> store = open();
  engine_.stop();
  const Answers answers =
      take(stat_many(store, std::vector<std::string>(200'000, "o1"), true, 8)).value();
  EXPECT_EQ(answers.size(), 200'000u);
  for (const Result<ObjectInfo>& each : answers) ASSERT_FALSE(each.has_value());
}

}  // namespace
}  // namespace headrace
