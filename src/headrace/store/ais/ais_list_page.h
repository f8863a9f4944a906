// Whole pages of the listing of a bucket that AIStore keeps itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/store/ais/ais_paths.h"
#include "headrace/store/protocol.h"

namespace headrace {

class AisProtocol;

// The targets walk a bucket folder by folder, so that they come by all of "train/" before
// "train.tar", and cut a page there. The page, and the one that goes on after it, are in the order
// of bytes, in which "train.tar" comes first: what begins like a folder's name and goes on with a
// character before '/' may be in neither. Servers before 4.0 may also say of such a page that it is
// the last.
//
// A page that ends beside a folder is therefore made whole: the names beside it are asked for, as
// far as they belong to this page. Those beside "train/" come before all that is in it, so that of
// a folder of many pages only the first one asks. If they are too many to be told at once, the page
// ends with the last of them that came, and the next one goes on there.
// Thread: confined. Borrows the protocol.
class AisListPage final : public LongPage {
 public:
  AisListPage(const AisProtocol& protocol, const AisPaths& paths, ListRequest list);
  void build_next(HttpRequest& request, uint64_t most_bytes) const override;
  bool ask_for_less(uint64_t most_bytes) override;
  Result<std::optional<ColumnPage>> take(const Response& response) override;

 private:
  struct Question {
    enum class Of : uint8_t { kPage, kEnd, kFolder, kNamesBeside, kEndBeside } of = Of::kPage;
    std::string text = {};            // the name of a folder, or what names begin with
    std::string after = {};           // only names after this one
    bool ends_with_wildcard = false;  // one more '*' at its end than in the text
  };
  uint32_t page_names(uint64_t most_bytes) const;
  std::vector<std::string> beginnings_beside(std::string_view folder) const;
  void look_for_folders();
  void ask_beside(std::string_view folder);
  Result<void> ask_with_wildcard(Question asked);
  Result<void> add_beside(const Question& asked, ColumnPage found);
  void end_at(std::string name);
  ColumnPage whole_page();

  const AisProtocol& protocol_;
  const AisPaths& paths_;
  const ListRequest list_;
  const std::string prefix_, start_, after_;  // full names between which the page's are
  uint32_t most_names_;                       // that an answer is asked for
  ColumnPage page_;                           // with full names
  std::string end_;                           // the last of them
  std::vector<ColumnPage> beside_;            // what it lacked
  std::vector<std::string> told_beside_;      // what names begin with that were asked for
  std::vector<Question> questions_ = {{}};    // the last one is next
};

// The names of folders beside which a page that ends with this name may leave out names, if they
// are folders: for "a/b-c" these are "a" and "a/b". Only names that begin with `prefix` matter.
std::vector<std::string_view> ais_folders_to_look_beside(std::string_view end,
                                                         std::string_view prefix);

}  // namespace headrace
