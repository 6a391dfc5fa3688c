#include "eigenformer/kernels/simd/amx.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "kernels/emulated_tiles.hpp"

using namespace eigenformer;
using namespace eigenformer::detail::kernels::detail;
using testing::EmulatedTiles;

namespace {

constexpr std::uint32_t tile_bit = 1u << 24, int8_bit = 1u << 25, bf16_bit = 1u << 22;
constexpr std::uint64_t registers = 0x60000;
constexpr AmxFeatures none{}, both{true, true};

int asked = 0;
bool granted() {
  ++asked;
  return true;
}
bool refused() {
  ++asked;
  return false;
}

}  // namespace

TEST_CASE("AMX is there where the CPU has it, its registers are saved and the system permits it") {
  const std::uint32_t all = tile_bit | int8_bit | bf16_bit;
  CHECK(amx_features(all, 1, registers | 7, granted) == both);
  CHECK(amx_features(tile_bit | int8_bit, 1, registers, granted) == AmxFeatures{true, false});
  CHECK(amx_features(tile_bit | bf16_bit, 1, registers, granted) == AmxFeatures{false, true});
  asked = 0;
  CHECK(amx_features(all, 1, registers, refused) == none);
  CHECK(asked == 1);
  // Nobody is asked for what is not there.
  CHECK(amx_features(int8_bit | bf16_bit, 1, registers, granted) == none);
  CHECK(amx_features(tile_bit, 1, registers, granted) == none);
  CHECK(amx_features(all, 0, registers, granted) == none);
  CHECK(amx_features(all, 1, 0x20000, granted) == none);
  CHECK(amx_features(all, 1, 0x40000, granted) == none);
  CHECK(amx_features(all, 1, 7, granted) == none);
  CHECK(asked == 1);
}

TEST_CASE("a session configures the thread's tiles once and releases them at its end") {
  EmulatedTiles::State& state = EmulatedTiles::state();
  state = {};
  {
    const TileSession<EmulatedTiles> outer;
    CHECK(state.configured);
    EmulatedTiles::load<3>(std::vector<float>(256, 1.0f).data(), 64);
    {
      const TileSession<EmulatedTiles> inner;
      std::thread([] {
        CHECK(!EmulatedTiles::state().configured);
        const TileSession<EmulatedTiles> other;
        CHECK(EmulatedTiles::state().configured);
      }).join();
    }
    CHECK(state.configured);
    CHECK(state.tiles[3].data[0][3] != 0);
  }
  CHECK(!state.configured);
  CHECK(state.times_configured == 1);
  CHECK(state.times_released == 1);
}

TEST_CASE("emulated tiles raise the CPU's faults") {
  EmulatedTiles::release();
  CHECK_THROWS_AS(EmulatedTiles::zero<0>(), std::logic_error);
  TileConfig config = full_tiles;
  config.palette = 2;
  CHECK_THROWS_AS(EmulatedTiles::configure(config), std::logic_error);
  config = full_tiles;
  config.rows[3] = 17;
  CHECK_THROWS_AS(EmulatedTiles::configure(config), std::logic_error);
  config = full_tiles;
  config.rows[8] = 16;
  CHECK_THROWS_AS(EmulatedTiles::configure(config), std::logic_error);
  config = full_tiles;
  config.rows[1] = 8;
  config.rows[2] = 0;
  config.row_bytes[2] = 0;
  EmulatedTiles::configure(config);
  CHECK_THROWS_AS(EmulatedTiles::zero<2>(), std::logic_error);
  CHECK_THROWS_AS((EmulatedTiles::dot_int8<1, 3, 4>()), std::logic_error);  // 8 rows of 16
  CHECK_THROWS_AS((EmulatedTiles::dot_bf16<3, 4, 1>()), std::logic_error);
  CHECK_THROWS_AS((EmulatedTiles::dot_bf16<3, 3, 4>()), std::logic_error);
  CHECK_NOTHROW(EmulatedTiles::dot_bf16<3, 4, 5>());
  EmulatedTiles::release();
}
