// The client side of one provider, for what lies below one root in one bucket.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/block_pool.h"
#include "headrace/base/pending.h"
#include "headrace/base/result.h"
#include "headrace/format/column_page.h"
#include "headrace/format/multipart_xml.h"
#include "headrace/format/object_info.h"
#include "headrace/store/options.h"
#include "headrace/store/read_batch.h"

namespace headrace {

class ObjectWriter;

// The same interface for every provider, enforced by one conformance suite. No function has a body
// here: every store answers every call. Calls return at once; the Pending (or the batch) completes
// exactly once, even if the engine stops.
// Names are relative to the root: at gs://bucket/run the name "a" is the object gs://bucket/run/a,
// just as it is the file "a" in a directory.
// Thread: any.
// Errors: the table of base/result.h; every error names the object's URL.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // Reads every target of the batch. kNotFound; kPreconditionFailed if a target's generation is
  // gone; kCorrupt; kExhausted if one object alone exceeds the memory budget; ...
  virtual void read(std::shared_ptr<ReadBatch> batch) = 0;

  // One page of names in UTF-8 byte order.
  virtual std::shared_ptr<Pending<ColumnPage>> list(ListRequest request) = 0;
  virtual std::shared_ptr<Pending<ObjectInfo>> stat(std::string name) = 0;
  // Writes one small object atomically: it appears whole or not at all. `bytes` must live until the
  // Pending has completed.
  virtual std::shared_ptr<Pending<ObjectInfo>> write(WriteRequest request,
                                                     std::span<const std::byte> bytes) = 0;
  // Writes one object of any size as a stream; see ObjectWriter. kInvalidArgument for options that
  // cannot work; errors of the store come with the first bytes or from close().
  virtual Result<std::shared_ptr<ObjectWriter>> open_writer(WriterOptions options) = 0;
  // One page of the multipart uploads below `prefix` that were neither completed nor aborted.
  // kInvalidArgument if the store has no multipart uploads.
  virtual std::shared_ptr<Pending<UploadsPage>> list_multipart(std::string prefix,
                                                               std::string after_name,
                                                               std::string after_upload_id) = 0;
  // Aborts one and deletes its parts. False if it no longer existed.
  virtual std::shared_ptr<Pending<bool>> abort_multipart(std::string name,
                                                         std::string upload_id) = 0;
  // kNotFound if it does not exist.
  virtual std::shared_ptr<Pending<bool>> remove(std::string name, Precondition precondition) = 0;
  virtual std::shared_ptr<Pending<ObjectInfo>> copy(CopyRequest request) = 0;
  // The object gets another name, and is gone from the one before. By one step where the provider
  // can; otherwise by a copy and a removal, between which it has both names. At no moment it has
  // none. kInvalidArgument if the names are equal.
  virtual std::shared_ptr<Pending<ObjectInfo>> rename(CopyRequest request) = 0;
  // Composes up to max_compose_sources() objects of this bucket into one, on the server. Its size
  // and CRC32C are checked against those of the sources. Also kPreconditionFailed if a source is no
  // longer in its generation.
  virtual std::shared_ptr<Pending<ObjectInfo>> compose(ComposeRequest request) = 0;

  // A URL that lets anyone send one request for the object until it expires. The object need not
  // exist. kInvalidArgument if the store has no such URLs, or no credentials.
  virtual std::shared_ptr<Pending<std::string>> presigned_url(UrlRequest request) = 0;

  // Somebody has read an object whole, piece by piece, and has compared nothing, since its checksum
  // is of this kind (kNone: it has none). Logged once for each host.
  virtual void not_compared(std::string_view name, ChecksumKind kind) = 0;
  // The root's URL, '/', and the name.
  virtual std::string url_of(std::string_view name) const = 0;
  // The size to assume for an object of unknown size, learned from earlier reads.
  virtual uint64_t expected_object_bytes() const = 0;
  // What proves the bytes that are written, by one request or in parts; none: it is not known yet,
  // or nothing does.
  virtual std::optional<SumLevel> written_sums(bool in_parts) const = 0;
  // Whether a stat may tell the sum of an object: not where the service has refused to.
  virtual bool tells_sums() const = 0;
  // How many objects a caller should have in flight.
  virtual uint64_t useful_in_flight() const = 0;
  // How many objects a caller who takes them in order should have in flight or ready: more where
  // some answers take much longer than others.
  virtual uint64_t useful_ahead() const = 0;
  // How many pages of one listing a caller should request at once. 1: pages are best requested one
  // by one, each with the token of the one before.
  virtual uint32_t useful_pages_in_flight() const = 0;
  // The memory budget that this store's reads and listings count against.
  virtual std::shared_ptr<BlockPool> pool() const = 0;
  // `count` reads will be asked for soon: a store with connections opens them now.
  virtual void expect_reads(uint32_t count) = 0;
  // 0: this store cannot compose.
  virtual uint32_t max_compose_sources() const = 0;
};

}  // namespace headrace
