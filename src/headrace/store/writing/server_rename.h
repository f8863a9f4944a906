// A rename, by whatever requests the provider has.
#pragma once

#include <memory>

#include "headrace/base/pending.h"
#include "headrace/store/copies.h"
#include "headrace/store/object_store.h"
#include "headrace/store/options.h"
#include "headrace/store/protocol.h"
#include "headrace/store/writing/change.h"

namespace headrace {

// Looks at the source. Where one request renames it, that is sent (RenameAttempt). Otherwise this
// generation of it is copied, and then removed on condition that it is still the same. However it
// ends, one of the two objects is there; if the removal fails, the error says whether both are.
// Thread: any. Keeps itself alive until it has ended.
// Errors: those of the requests, with the URL of the object that they are about.
class ServerRename final : public Change {
 public:
  // `remote` has both names; `stored` reads the bucket as it is stored.
  static std::shared_ptr<Pending<ObjectInfo>> start(std::shared_ptr<RemoteRoot> remote,
                                                    std::shared_ptr<ObjectStore> stored,
                                                    CopyRequest request);

 private:
  ServerRename(std::shared_ptr<RemoteRoot> remote, std::shared_ptr<ObjectStore> stored,
               CopyRequest request);
  awaitable<Result<ObjectInfo>> rename();
  // Whether one request does it.
  bool is_one_request(const ObjectInfo& source) const;
  awaitable<Result<ObjectInfo>> remove_source(ObjectInfo source, ObjectInfo copy);

  const std::shared_ptr<ObjectStore> stored_;
  const CopyRequest request_;
};

}  // namespace headrace
