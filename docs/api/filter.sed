# How Doxygen reads a header. Only with a \file comment has it a page, which lists functions outside of classes.
1s|^#pragma once|#pragma once /** \\file */|
# The first sentence of a comment is its summary; "et al." does not end it.
s|et al[.] |et al.\\ |g
s|et al[.]$|et al.\\ |
