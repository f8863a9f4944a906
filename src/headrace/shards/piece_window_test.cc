#include "headrace/shards/piece_window.h"

#include <gtest/gtest.h>

#include <thread>

namespace headrace {
namespace {

using Turn = PieceWindow::Turn;

TEST(PieceWindowTest, TheReaderWhoseTurnItIsHasAllOfTheWindow) {
  const auto window = std::make_shared<PieceWindow>(100);
  Turn first(window), second(window);
  EXPECT_TRUE(first.try_take(60));
  EXPECT_FALSE(second.try_take(1));
  EXPECT_TRUE(first.try_take(40));
  EXPECT_FALSE(first.try_take(1));
}

TEST(PieceWindowTest, TheNextReaderHasWhatIsLeftOnceTheFirstHasBegunItsLastPiece) {
  const auto window = std::make_shared<PieceWindow>(100);
  Turn first(window), second(window), third(window);
  EXPECT_TRUE(first.try_take(60));
  first.pass();
  EXPECT_FALSE(second.try_take(41));
  EXPECT_TRUE(second.try_take(40));
  EXPECT_FALSE(third.try_take(1));
  first.give_back(60);
  EXPECT_FALSE(third.try_take(10));
  EXPECT_TRUE(second.try_take(60));
}

TEST(PieceWindowTest, APieceThatIsLargerThanTheWindowIsUnderWayAlone) {
  const auto window = std::make_shared<PieceWindow>(100);
  Turn turn(window);
  EXPECT_TRUE(turn.try_take(300));
  EXPECT_FALSE(turn.try_take(1));
  turn.give_back(300);
  EXPECT_TRUE(turn.try_take(1));
  EXPECT_FALSE(turn.try_take(300));
}

TEST(PieceWindowTest, WhoHasPassedBeginsMorePiecesOneAtATimeAndWaitsForNobody) {
  const auto window = std::make_shared<PieceWindow>(100);
  Turn first(window), second(window);
  EXPECT_TRUE(first.try_take(50));
  first.pass();
  EXPECT_TRUE(second.try_take(50));
  EXPECT_FALSE(first.try_take(10));
  first.give_back(50);
  EXPECT_TRUE(second.try_take(50));
  EXPECT_TRUE(first.try_take(10));
  EXPECT_FALSE(first.try_take(10));
}

TEST(PieceWindowTest, AReaderThatEndsPassesAndGivesBackWhatItHas) {
  const auto window = std::make_shared<PieceWindow>(100);
  auto first = std::make_unique<Turn>(window);
  Turn second(window);
  EXPECT_TRUE(first->try_take(100));
  first.reset();
  EXPECT_TRUE(second.try_take(100));
}

TEST(PieceWindowTest, AWaitEndsWithRoomAndWithACancel) {
  const auto window = std::make_shared<PieceWindow>(100);
  Turn first(window), second(window), third(window);
  EXPECT_TRUE(first.try_take(100));
  bool has_taken = false, is_cancelled = false;
  {
    const std::jthread waits_for_room(
        [&] { has_taken = second.take(50, MayBlock::on_this_thread()); });
    const std::jthread is_given_up(
        [&] { is_cancelled = !third.take(50, MayBlock::on_this_thread()); });
    third.cancel();
    first.pass();
    first.give_back(100);
  }
  EXPECT_TRUE(has_taken);
  EXPECT_TRUE(is_cancelled);
  EXPECT_FALSE(third.take(1, MayBlock::on_this_thread()));
}

}  // namespace
}  // namespace headrace
