# How Doxygen reads a header. Line numbers stay as they are.
# Only with a \file comment has a header a page, which lists functions outside of classes.
1s|^#pragma once|#pragma once /** \\file */|
# A comment right before namespace eigenformer is about the header.
/^$/{
  $!N
  /^\n\/\/\//{
    :comment
    $!N
    /\n\/\/\/[^\n]*$/{
      $!b comment
    }
    /[@\\]file/!{
      /\nnamespace eigenformer\(::detail\)\{0,1\} {$/s|^\n|/// \\file\n|
    }
  }
}
# The first sentence of a comment is its summary; "et al." and "eq." do not end it.
s|et al[.]|et al\&#46;|g
s|eq[.] |eq\&#46; |g
