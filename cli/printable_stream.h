#pragma once

#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

#include "pareprop/text/escape.h"

namespace pareprop::cli {

// Where everything goes that the program says: what passes is made printable (text::printable, line
// breaks kept), so that no name of a file, a class or a tensor can command the terminal. Each line
// goes on as a whole.
class PrintableStream : public std::ostream {
 public:
  enum class Flush { when_asked, each_line };

  PrintableStream(std::ostream& target, Flush flush);
  ~PrintableStream() override;

  // errno of the first write that failed; 0: none did.
  int error() const { return buffer_.error; }

 private:
  friend void write_raw(std::ostream&, std::string_view);
  friend const std::ostream& behind(const std::ostream&);

  struct Buffer : std::streambuf {
    Buffer(std::ostream& to, Flush when) : target(to), flush(when) {}
    int_type overflow(int_type c) override;
    std::streamsize xsputn(const char* text, std::streamsize count) override;
    int sync() override;
    bool pass_on(std::size_t count, bool then_flush);
    bool write(std::string_view text);

    std::ostream& target;
    const Flush flush;
    std::string waiting;
    int error = 0;
  };
  Buffer buffer_;
};

// Control sequences of the program's own, as they are.
void write_raw(std::ostream& stream, std::string_view text);

// What a PrintableStream writes to; any other stream is itself.
const std::ostream& behind(const std::ostream& stream);

// "name: what", the lines that follow the first indented, so that none of them passes for a message
// of its own.
void say(std::ostream& stream, std::string_view name, std::string_view what);

}  // namespace pareprop::cli
