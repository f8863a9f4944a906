// The generation of an object, where it is needed for every read.
#pragma once

#include <array>
#include <memory>
#include <string_view>

namespace headrace {

// A generation as text, without a heap allocation unless it is long.
class GenerationText {
 public:
  GenerationText() = default;
  GenerationText(std::string_view text) { assign(text); }  // implicit: it is one
  GenerationText(const GenerationText& other) { assign(other.view()); }
  GenerationText& operator=(const GenerationText& other) {
    if (this != &other) assign(other.view());
    return *this;
  }

  void assign(std::string_view text) {
    size_ = text.size();
    if (size_ > short_.size()) long_ = std::make_unique_for_overwrite<char[]>(size_);
    text.copy(size_ > short_.size() ? long_.get() : short_.data(), size_);
  }
  // "<first><between><second>"
  void assign(std::string_view first, char between, std::string_view second) {
    size_ = first.size() + 1 + second.size();
    if (size_ > short_.size()) long_ = std::make_unique_for_overwrite<char[]>(size_);
    char* const begin = size_ > short_.size() ? long_.get() : short_.data();
    first.copy(begin, first.size());
    begin[first.size()] = between;
    second.copy(begin + first.size() + 1, second.size());
  }
  std::string_view view() const {
    return {size_ > short_.size() ? long_.get() : short_.data(), size_};
  }
  bool empty() const { return size_ == 0; }

 private:
  std::array<char, 40> short_{};  // enough for a GCS generation or an ETag
  std::unique_ptr<char[]> long_;
  size_t size_ = 0;
};

}  // namespace headrace
