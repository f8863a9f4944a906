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
// A page that ends beside a folder is therefore made whole: the names beside it are asked for.
// Thread: confined. Borrows the protocol.
class AisListPage final : public LongPage {
 public:
  AisListPage(const AisProtocol& protocol, const AisPaths& paths, ListRequest list)
      : protocol_(protocol), paths_(paths), list_(std::move(list)) {}
  void build_next(HttpRequest& request) const override;
  Result<std::optional<ColumnPage>> take(const Response& response) override;

 private:
  struct Question {
    enum class Of : uint8_t { kPage, kEnd, kFolder, kNamesBeside } of = Of::kPage;
    std::string text = {};  // a name, the name of a folder, or what names begin with
  };
  void ask_beside(std::string_view folder);
  void look_for_folders();
  Result<void> add_beside(const std::string& begin, const ColumnPage& found);

  const AisProtocol& protocol_;
  const AisPaths& paths_;
  const ListRequest list_;
  ColumnPage page_;                         // with full names
  std::string end_;                         // the last of them
  std::vector<Question> questions_ = {{}};  // the last one is next
};

// The names of folders beside which a page that ends with this name may leave out names, if they
// are folders: for "a/b-c" these are "a" and "a/b". Only names that begin with `prefix` matter.
std::vector<std::string_view> ais_folders_to_look_beside(std::string_view end,
                                                         std::string_view prefix);

}  // namespace headrace
