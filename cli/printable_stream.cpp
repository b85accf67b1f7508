#include "cli/printable_stream.h"

#include <cerrno>

#include "pareprop/text/escape.h"

namespace pareprop::cli {

PrintableStream::PrintableStream(std::ostream& target, Flush flush)
    : std::ostream(nullptr), buffer_(target, flush) {
  rdbuf(&buffer_);
}

PrintableStream::~PrintableStream() { buffer_.sync(); }

bool PrintableStream::Buffer::write(std::string_view text) {
  errno = 0;
  target.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!target && error == 0) error = errno != 0 ? errno : EIO;
  return error == 0;
}

bool PrintableStream::Buffer::pass_on(std::size_t count, bool then_flush) {
  const std::string text =
      text::printable(std::string_view(waiting).substr(0, count), text::Lines::kept);
  waiting.erase(0, count);
  write(text);
  errno = 0;
  if (then_flush && !target.flush() && error == 0) error = errno != 0 ? errno : EIO;
  return error == 0;
}

PrintableStream::Buffer::int_type PrintableStream::Buffer::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const char letter = traits_type::to_char_type(c);
  return xsputn(&letter, 1) == 1 ? c : traits_type::eof();
}

std::streamsize PrintableStream::Buffer::xsputn(const char* text, std::streamsize count) {
  waiting.append(text, static_cast<std::size_t>(count));
  const std::size_t end = waiting.rfind('\n');
  if (end == std::string::npos) return count;
  return pass_on(end + 1, flush == Flush::each_line) ? count : 0;
}

int PrintableStream::Buffer::sync() { return pass_on(waiting.size(), true) ? 0 : -1; }

void write_raw(std::ostream& stream, std::string_view text) {
  auto* const printable = dynamic_cast<PrintableStream*>(&stream);
  if (printable == nullptr) {
    stream << text;
    return;
  }
  auto& buffer = printable->buffer_;
  buffer.pass_on(buffer.waiting.size(), false);
  if (!buffer.write(text)) printable->setstate(std::ios::badbit);
}

const std::ostream& behind(const std::ostream& stream) {
  const auto* const printable = dynamic_cast<const PrintableStream*>(&stream);
  return printable == nullptr ? stream : printable->buffer_.target;
}

void say(std::ostream& stream, std::string_view name, std::string_view what) {
  while (!what.empty() && what.back() == '\n') what.remove_suffix(1);
  std::string text = std::string(name) + ": ";
  for (const char c : what) {
    text += c;
    if (c == '\n') text += "  ";
  }
  stream << text + "\n" << std::flush;
}

}  // namespace pareprop::cli
