#include "pareprop/data/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>

namespace pareprop::data {
namespace {

constexpr std::size_t kFirstPiece = std::size_t{1} << 16;
constexpr int kGzipOnly = 16 + MAX_WBITS;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("the gzip data " + what + "; download or compress the file again");
}

class Inflater {
 public:
  Inflater() {
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream* operator->() { return &stream_; }
  z_stream* get() { return &stream_; }

 private:
  z_stream stream_{};
};

uInt piece(std::size_t size) {
  return static_cast<uInt>(std::min<std::size_t>(size, std::numeric_limits<uInt>::max()));
}

}  // namespace

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::size_t limit) {
  std::vector<std::byte> out;
  std::size_t written = 0;
  Inflater inflater;
  for (int status = Z_OK; status != Z_STREAM_END || !bytes.empty();) {
    if (status == Z_STREAM_END) {
      if (!is_gzip(bytes)) fail("is followed by other bytes");
      inflateReset(inflater.get());
    }
    // One byte more than allowed, to see whether there is more.
    if (written == out.size()) {
      out.resize(std::min(std::max(kFirstPiece, 2 * out.size()), limit + 1));
    }
    // zlib's interface is older than const.
    inflater->next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
    inflater->avail_in = piece(bytes.size());
    inflater->next_out = reinterpret_cast<Bytef*>(out.data() + written);
    inflater->avail_out = piece(out.size() - written);
    const std::size_t room = inflater->avail_out, given = inflater->avail_in;
    status = inflate(inflater.get(), Z_NO_FLUSH);
    bytes = bytes.subspan(given - inflater->avail_in);
    written += room - inflater->avail_out;
    if (written > limit) fail("unpacks to more than " + std::to_string(limit) + " bytes");
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    if (status == Z_BUF_ERROR) fail("is cut off");
    if (status != Z_OK && status != Z_STREAM_END) fail("is damaged");
  }
  out.resize(written);
  return out;
}

}  // namespace pareprop::data
