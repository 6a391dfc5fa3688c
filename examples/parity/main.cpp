/// Compares a module with PyTorch's. make_fixture.py writes the inputs, outputs and gradients of an
/// nn.TransformerEncoder to a file; this program runs our encoder on it and prints which tensor differs, by
/// how much and where. To compare a module of your own, change the two places that are marked.

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "eigenformer/eigenformer.hpp"
#include "eigenformer/io.hpp"

namespace ef = eigenformer;

int main(int argc, char** argv) {
  const bool help = argc == 2 && argv[1] == std::string_view("--help");
  if (help || argc != 2 || argv[1][0] == '-') {
    std::fprintf(help ? stdout : stderr, "usage: parity FIXTURE (a file written by make_fixture.py)\n");
    return help ? 0 : 2;
  }
  try {
    const auto fixture = ef::ParityFixture::open(argv[1]);

    // The module; its parameters are loaded from the fixture.
    ef::RandomGenerator rng(1);
    ef::Encoder<float> encoder(
        {.num_layers = fixture.option<ef::index_t>("num_layers"),
         .final_norm = true,
         .layer = {.d_model = fixture.option<ef::index_t>("d_model"),
                   .num_heads = fixture.option<ef::index_t>("num_heads"),
                   .dim_feedforward = fixture.option<ef::index_t>("dim_feedforward"),
                   .activation = fixture.option<std::string>("activation") == "gelu" ? ef::Activation::gelu
                                                                                     : ef::Activation::relu,
                   .norm_first = fixture.option<bool>("norm_first")}},
        rng);

    // The call. The gradient of an input that is read as in["name"] is compared, too.
    const auto report =
        ef::check_parity(fixture, encoder, [&](const ef::Context<float>& ctx, ef::ParityInputs<float>& in) {
          return encoder(ctx, in["src"], ef::AttentionMask::block(fixture.get<bool>("in.mask")));
        });

    std::fputs(report.str().c_str(), stdout);
    return report.ok() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parity: %s\n", error.what());
    return 1;
  }
}
