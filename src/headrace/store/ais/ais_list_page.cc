#include "headrace/store/ais/ais_list_page.h"

#include <algorithm>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/format/ais_list.h"
#include "headrace/store/ais/ais_protocol.h"

namespace headrace {
namespace {

// Whether some names can begin with both.
bool can_agree(std::string_view a, std::string_view b) {
  return a.starts_with(b) || b.starts_with(a);
}

std::vector<std::string_view> names_in(const ColumnPage& page) {
  std::vector<std::string_view> names;
  names.reserve(page.size());
  for (size_t i = 0; i < page.size(); ++i) names.push_back(page.name(i));
  return names;
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

void AisListPage::build_next(HttpRequest& request) const {
  const Question& next = questions_.back();
  const std::string folder_prefix = cat(next.text, "/");
  AisListQuery query{.page_size = 1};
  switch (next.of) {
    case Question::Of::kPage: protocol_.build_list(request, list_); return;
    case Question::Of::kEnd: {
      ListRequest after = list_;
      after.page_token = cat(" ", next.text);
      protocol_.build_list(request, after);
      return;
    }
    case Question::Of::kFolder: query.prefix = folder_prefix; break;
    case Question::Of::kNamesBeside:
      query.prefix = next.text;
      query.page_size = kAisNamesOnAPage;
      break;
  }
  paths_.begin_bucket(request, "GET");
  request.own_body(ais_list_body(query));
  request.add_header("Content-Type", "application/json");
  request.add_header("Accept", "application/msgpack");
}

Result<std::optional<ColumnPage>> AisListPage::take(const Response& response) {
  Result<ColumnPage> got = AisProtocol::parse_entries(response);
  if (!got) return std::unexpected(std::move(got.error()));
  const Question asked = std::move(questions_.back());
  questions_.pop_back();
  switch (asked.of) {
    case Question::Of::kPage:
      page_ = std::move(*got);
      if (!page_.empty()) end_ = page_.name(page_.size() - 1);
      if (!page_.next_page_token.empty()) {
        look_for_folders();
      } else if (std::ranges::any_of(end_, [](char c) { return c >= ' ' && c < '/'; })) {
        questions_.push_back({Question::Of::kEnd, end_});
      }
      break;
    case Question::Of::kEnd:
      if (got->empty()) break;
      page_.next_page_token = cat(" ", end_);
      look_for_folders();
      break;
    case Question::Of::kFolder:
      if (!got->empty()) ask_beside(asked.text);
      break;
    case Question::Of::kNamesBeside:
      if (Result<void> added = add_beside(asked.text, *got); !added) {
        return std::unexpected(std::move(added.error()));
      }
      break;
  }
  if (!questions_.empty()) return std::nullopt;
  return protocol_.shape(std::move(page_), list_);
}

void AisListPage::look_for_folders() {
  const std::string prefix = protocol_.root().full_name(list_.prefix);
  for (const std::string_view folder : ais_folders_to_look_beside(end_, prefix)) {
    if (end_[folder.size()] == '/') {
      ask_beside(folder);
    } else {
      questions_.push_back({Question::Of::kFolder, std::string(folder)});
    }
  }
}

void AisListPage::ask_beside(std::string_view folder) {
  const std::string prefix = protocol_.root().full_name(list_.prefix);
  for (char c = ' '; c < '/' && c <= end_[folder.size()]; ++c) {
    const std::string begin = cat(folder, std::string_view(&c, 1));
    if (can_agree(begin, prefix)) questions_.push_back({Question::Of::kNamesBeside, begin});
  }
}

Result<void> AisListPage::add_beside(const std::string& begin, const ColumnPage& found) {
  // Of a prefix that is a folder's name, that folder alone is listed.
  const std::string folder = cat(begin, "/");
  const std::vector<std::string_view> beside = names_in(found);
  if (!found.next_page_token.empty() ||
      std::ranges::any_of(beside, [&](auto name) { return name.starts_with(folder); })) {
    return fail(Code::kInvalidArgument, "AIStore leaves out names that begin with '",
                printable_line(begin), "' from listings of more than one page, since '",
                printable_line(std::string_view(begin).substr(0, begin.size() - 1)),
                "/' is a folder: list its folders one by one, with a '/' at the end of each "
                "prefix, or give the names in a table");
  }
  const std::string after(split_ais_page_token(list_.page_token).continuation);
  const std::string start =
      list_.start_offset.empty() ? "" : protocol_.root().full_name(list_.start_offset);
  const std::vector<std::string_view> had = names_in(page_);
  std::vector<ObjectInfo> infos;
  for (size_t i = 0; i < beside.size(); ++i) {
    if (beside[i] <= after || beside[i] < start || beside[i] > end_) continue;
    if (!std::ranges::binary_search(had, beside[i])) infos.push_back(found.info(i));
  }
  if (infos.empty()) return {};
  for (size_t i = 0; i < page_.size(); ++i) infos.push_back(page_.info(i));
  std::ranges::sort(infos, {}, &ObjectInfo::name);
  ColumnPage whole;
  for (const ObjectInfo& info : infos) whole.add(info);
  whole.next_page_token = std::move(page_.next_page_token);
  page_ = std::move(whole);
  return {};
}

}  // namespace headrace
