#include "translator/training/room.hpp"

#include <doctest/doctest.h>

#include <string>

#include "eigenformer/core/base/error.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("room on the disk is asked for, and given back") {
  const TemporaryFolder folder;
  detail::require_room(folder / "m", {1000, 5000000});
  CHECK(folder.names().empty());
  const std::string message = message_of<IoError>([&] {
    detail::require_room(folder.path(), {10, std::uint64_t{1} << 50});
  });
  CHECK(contains(message, "MB in '" + folder.path().string() + "'"));
  CHECK(folder.names().empty());
}
