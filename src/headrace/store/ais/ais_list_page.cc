#include "headrace/store/ais/ais_list_page.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/format/ais_list.h"
#include "headrace/store/ais/ais_protocol.h"
#include "headrace/store/name_before.h"

namespace headrace {
namespace {

// What an answer takes for one name: this is enough for those of 150 characters. If they are
// longer, fewer are asked for.
constexpr uint64_t kNameBytes = 256;

// Fewer are not asked for: each page costs the targets a walk.
constexpr uint32_t kFewestNames = 100;

// Whether some names can begin with both.
bool can_agree(std::string_view a, std::string_view b) {
  return a.starts_with(b) || b.starts_with(a);
}

// Whether some name that begins like this comes after `after`.
bool goes_beyond(std::string_view begin, std::string_view after) {
  return after < begin || after.starts_with(begin);
}

// Where walking folder by folder is not in the order of bytes.
bool is_beside_a_folder(std::string_view name) {
  return std::ranges::any_of(name, [](char c) { return c >= ' ' && c < '/'; });
}

// Servers refuse prefixes and names with "../" or "~/" in them; newer ones, with "." or ".." as a
// part of the path.
bool may_be_a_folder(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('/') + 1);
  return !last.ends_with("..") && !last.ends_with('~') && last != ".";
}

bool has(const ColumnPage& page, std::string_view name) {
  const auto rows = std::views::iota(size_t{0}, page.size());
  const auto at = std::ranges::lower_bound(rows, name, {}, [&](size_t i) { return page.name(i); });
  return at != rows.end() && page.name(*at) == name;
}

bool has_others_than(const ColumnPage& page, std::string_view begin) {
  for (size_t i = 0; i < page.size(); ++i) {
    if (!page.name(i).starts_with(begin)) return true;
  }
  return false;
}

void drop_after(ColumnPage& page, std::string_view end) {
  page.erase_if([&](std::string_view name) { return name > end; });
}

}  // namespace

std::vector<std::string_view> ais_folders_to_look_beside(std::string_view end,
                                                         std::string_view prefix) {
  std::vector<std::string_view> folders;
  for (size_t size = 1; size < end.size(); ++size) {
    const char next = end[size];
    if (next < ' ' || next > '/' || end[size - 1] == '/') continue;
    const std::string_view folder = end.substr(0, size);
    // A longer prefix says how the names beside the folder go on.
    const bool matters =
        folder.size() >= prefix.size()
            ? folder.starts_with(prefix)
            : prefix.starts_with(folder) && prefix[size] >= ' ' && prefix[size] < '/';
    if (matters) folders.push_back(folder);
  }
  return folders;
}

AisListPage::AisListPage(const AisProtocol& protocol, const AisPaths& paths, ListRequest list)
    : protocol_(protocol),
      paths_(paths),
      list_(std::move(list)),
      prefix_(protocol.root().full_name(list_.prefix)),
      start_(list_.start_offset.empty() ? "" : protocol.root().full_name(list_.start_offset)),
      after_(split_ais_page_token(list_.page_token).continuation),
      most_names_(list_.max_results > 0 && list_.delimiter.empty()
                      ? std::clamp(list_.max_results, kFewestNames, kAisNamesOnAPage)
                      : kAisNamesOnAPage) {}

uint32_t AisListPage::page_names(uint64_t most_bytes) const {
  return static_cast<uint32_t>(std::min<uint64_t>(most_names_, most_bytes / kNameBytes));
}

void AisListPage::build_next(HttpRequest& request, uint64_t most_bytes) const {
  const Question& next = questions_.back();
  const std::string folder_prefix = cat(next.text, "/");
  const std::string token = cat(" ", next.after);
  AisListQuery query{.prefix = next.text, .page_size = 1};
  switch (next.of) {
    case Question::Of::kPage: protocol_.build_list(request, list_, page_names(most_bytes)); return;
    case Question::Of::kEnd: {
      ListRequest after = list_;
      after.page_token = token;
      protocol_.build_list(request, after, 1);
      return;
    }
    case Question::Of::kFolder: query.prefix = folder_prefix; break;
    case Question::Of::kNamesBeside: query.page_size = page_names(most_bytes); break;
    case Question::Of::kEndBeside: break;
  }
  const std::string with_wildcard = cat(next.text, "*");
  if (next.ends_with_wildcard) query.prefix = with_wildcard;
  if (!next.after.empty()) query.page_token = token;
  paths_.begin_bucket(request, "GET");
  request.own_body(ais_list_body(query));
  request.add_header("Content-Type", "application/json");
  request.add_header("Accept", "application/msgpack");
}

bool AisListPage::ask_for_less(uint64_t most_bytes) {
  const uint32_t names = page_names(most_bytes);
  if (names <= 1) return false;
  most_names_ = names / 2;
  return true;
}

Result<std::optional<ColumnPage>> AisListPage::take(const Response& response) {
  Result<ColumnPage> got = protocol_.parse_entries(response);
  if (!got) return std::unexpected(std::move(got.error()));
  const Question asked = std::move(questions_.back());
  questions_.pop_back();
  const bool is_beside =
      asked.of == Question::Of::kNamesBeside || asked.of == Question::Of::kEndBeside;
  if (is_beside && has_others_than(*got, asked.text)) {
    if (Result<void> again = ask_with_wildcard(asked); !again) {
      return std::unexpected(std::move(again.error()));
    }
    return std::nullopt;
  }
  switch (asked.of) {
    case Question::Of::kPage:
      page_ = std::move(*got);
      if (!page_.empty()) end_ = page_.name(page_.size() - 1);
      if (!page_.next_page_token.empty()) {
        look_for_folders();
      } else if (is_beside_a_folder(end_)) {
        questions_.push_back({.of = Question::Of::kEnd, .after = end_});
      }
      break;
    case Question::Of::kEnd:
      if (!got->empty()) end_at(end_);
      break;
    case Question::Of::kFolder:
      if (!got->empty()) ask_beside(asked.text);
      break;
    case Question::Of::kNamesBeside:
      if (Result<void> added = add_beside(asked, std::move(*got)); !added) {
        return std::unexpected(std::move(added.error()));
      }
      break;
    case Question::Of::kEndBeside:
      if (!got->empty()) end_at(asked.after);
      break;
  }
  if (!questions_.empty()) return std::nullopt;
  return protocol_.shape(whole_page(), list_);
}

// The page ends with this name, which is none after its end, and another one follows.
void AisListPage::end_at(std::string name) {
  end_ = std::move(name);
  drop_after(page_, end_);
  for (ColumnPage& each : beside_) drop_after(each, end_);
  page_.next_page_token = cat(" ", end_);
  questions_.clear();
  look_for_folders();
}

void AisListPage::look_for_folders() {
  for (const std::string_view folder : ais_folders_to_look_beside(end_, prefix_)) {
    if (end_[folder.size()] == '/') {
      ask_beside(folder);
    } else if (may_be_a_folder(folder) && !beginnings_beside(folder).empty()) {
      questions_.push_back({.of = Question::Of::kFolder, .text = std::string(folder)});
    }
  }
}

// What names beside a folder begin with, if the page may lack them.
std::vector<std::string> AisListPage::beginnings_beside(std::string_view folder) const {
  std::vector<std::string> beginnings;
  for (char c = ' '; c < '/' && c <= end_[folder.size()]; ++c) {
    std::string begin = cat(folder, std::string_view(&c, 1));
    if (can_agree(begin, prefix_) && goes_beyond(begin, after_) && goes_beyond(begin, start_) &&
        std::ranges::find(told_beside_, begin) == told_beside_.end()) {
      beginnings.push_back(std::move(begin));
    }
  }
  return beginnings;
}

void AisListPage::ask_beside(std::string_view folder) {
  const std::string after = std::max(after_, start_.empty() ? "" : name_before(start_));
  for (std::string& begin : beginnings_beside(folder)) {
    std::string start = after.starts_with(begin) ? after : "";
    questions_.push_back(
        {.of = Question::Of::kNamesBeside, .text = std::move(begin), .after = std::move(start)});
  }
}

// Newer servers take a '*' at the end of a prefix for a wildcard and list what begins with the
// rest, in which the names in question may be missing. Of two, they leave one.
Result<void> AisListPage::ask_with_wildcard(Question asked) {
  if (asked.ends_with_wildcard || !asked.text.ends_with('*')) {
    return fail(Code::kUnavailable, "the cluster lists names that do not begin with '",
                printable_line(asked.text), "' where only these were asked for");
  }
  asked.ends_with_wildcard = true;
  questions_.push_back(std::move(asked));
  return {};
}

Result<void> AisListPage::add_beside(const Question& asked, ColumnPage found) {
  told_beside_.push_back(asked.text);
  if (found.empty()) return {};
  // Of a prefix that is a folder's name, that folder alone is listed.
  const std::string& begin = asked.text;
  const std::string folder = cat(begin, "/");
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found.name(i).starts_with(folder)) continue;
    return fail(Code::kInvalidArgument, "AIStore leaves out names that begin with '",
                printable_line(begin), "' from listings of more than one page, since '",
                printable_line(std::string_view(begin).substr(0, begin.size() - 1)), "/' and '",
                printable_line(folder),
                "' are folders: list its folders one by one, with a '/' at the end of each prefix, "
                "or give the names in a table");
  }
  const bool is_cut = !found.next_page_token.empty();
  std::string last(found.name(found.size() - 1));
  found.erase_if([&](std::string_view name) {
    return name <= after_ || name < start_ || name > end_ || has(page_, name);
  });
  if (!found.empty()) beside_.push_back(std::move(found));
  if (last >= end_) return {};
  if (is_cut) {
    end_at(std::move(last));
  } else if (is_beside_a_folder(std::string_view(last).substr(begin.size()))) {
    questions_.push_back({.of = Question::Of::kEndBeside,
                          .text = begin,
                          .after = std::move(last),
                          .ends_with_wildcard = asked.ends_with_wildcard});
  }
  return {};
}

// With what it lacked, in the order of bytes.
ColumnPage AisListPage::whole_page() {
  std::erase_if(beside_, [](const ColumnPage& each) { return each.empty(); });
  if (beside_.empty()) return std::move(page_);
  std::string token = std::move(page_.next_page_token);
  beside_.push_back(std::move(page_));
  struct Row {
    const ColumnPage* page;
    size_t row;
    std::string_view name() const { return page->name(row); }
  };
  std::vector<Row> rows;
  uint64_t text_bytes = 0;
  for (const ColumnPage& each : beside_) {
    text_bytes += each.text_bytes();
    for (size_t i = 0; i < each.size(); ++i) rows.push_back({&each, i});
  }
  std::ranges::sort(rows, {}, &Row::name);
  ColumnPage whole;
  whole.reserve(rows.size(), text_bytes);
  for (const Row& each : rows) whole.add(*each.page, each.row);
  whole.next_page_token = std::move(token);
  return whole;
}

}  // namespace headrace
