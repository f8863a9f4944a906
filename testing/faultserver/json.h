// JSON values, enough for the API bodies and the control requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace faultserver {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // In the order written.

  Json() = default;
  Json(bool value) : value_(value) {}
  Json(double value) : value_(value) {}
  Json(int value) : value_(int64_t{value}) {}
  Json(int64_t value) : value_(value) {}
  Json(uint64_t value) : value_(static_cast<int64_t>(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}

  // Nothing when `text` is not one JSON value.
  static std::optional<Json> parse(std::string_view text);
  void append_to(std::string& out) const;
  std::string dump() const;

  bool is_null() const { return value_.index() == 0; }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_number() const {
    return std::holds_alternative<int64_t>(value_) || std::holds_alternative<double>(value_);
  }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // The member called `name`; a null value when there is none or this is no object.
  const Json& operator[](std::string_view name) const;
  bool has(std::string_view name) const { return !(*this)[name].is_null(); }

  // The value read kindly: numbers may be written as strings (GCS does that with 64-bit ones).
  bool boolean(bool otherwise = false) const;
  int64_t integer(int64_t otherwise = 0) const;
  double number(double otherwise = 0) const;
  std::string text(std::string_view otherwise = "") const;
  const Array& array() const;
  const Object& object() const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

// Appends `text` in quotes.
void append_json_string(std::string& out, std::string_view text);

}  // namespace faultserver
