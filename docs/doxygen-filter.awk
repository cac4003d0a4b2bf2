# Turns the plain comments of a public header into comments that Doxygen reads:
# - the first one describes the file;
# - one above declarations describes all of them, up to an empty line or the next comment;
# - one that follows code on its line describes that code;
# - a list of macros, X(name, …, "text"), is expanded where it is used, each with its text.

# Escapes the characters that have a meaning to Doxygen, but not in indented examples.
function escaped(text) {
    if (text ~ /^ *\*     / || text ~ /^         /) return text
    gsub(/\\/, "\\\\", text)
    gsub(/</, "\\&lt;", text)
    gsub(/@/, "\\@", text)
    gsub(/%/, "%%", text)
    gsub(/#/, "\\#", text)
    return text
}
function is_open(text) { return text !~ /\*\// }

# The line with each whole word replaced.
function replaced(line, word, by,    done, before, after) {
    done = ""
    while ((i_word = index(line, word)) > 0) {
        before = substr(line, 1, i_word - 1)
        after = substr(line, i_word + length(word))
        line = after
        done = done before ((before ~ /[A-Za-z0-9_]$/ && before !~ /_$/) || after ~ /^[A-Za-z0-9_]/ ? word : by)
    }
    return done line
}
# X(name, row, "text") of a list, by the template of the last #define X.
function expanded(entry,    n, values, names, i, line, text, m) {
    m = split(x_names, names, /, */)
    n = 0
    while (match(entry, /("([^"\\]|\\.)*"|[^,"()]|\([^()]*\))+/)) {
        values[++n] = substr(entry, RSTART, RLENGTH)
        sub(/^ */, "", values[n])
        entry = substr(entry, RSTART + RLENGTH + 1)
    }
    line = x_body
    gsub(/##/, "", line)
    for (i = 1; i <= m; i++) line = replaced(line, names[i], values[i])
    text = values[m]
    gsub(/^"|"$/, "", text)
    if (text == "") text = "The largest value of it so far."
    return "/** " escaped(text) " */ " line
}

# Prints the comment above a declaration. The members of a structure have comments of their own.
function describe(line) {
    if (about == "" || in_statement || in_macro || line ~ /^[ }]*$/ || line ~ /^#(if|else|endif|include|pragma|undef)/) return
    print about
    if (line ~ /\{$/) about = ""
}
# Follows a line of code: does the next line continue it?
function statement(code,    was_in_macro) {
    sub(/ *$/, "", code)
    was_in_macro = in_macro
    in_macro = code ~ /\\$/
    if (!was_in_macro && !in_macro && code !~ /^#/ && code != "") in_statement = code !~ /[;{},]$/ || (code ~ /,$/ && code ~ /\(/)
}

# Code that a comment follows: fields that are declared together get the comment each.
function each(code, comment,    type, names, n, i, text) {
    if (inside || code !~ /^ +[a-z_0-9]+ [a-z_0-9]+(\[[A-Z_a-z0-9]+\])?(, [a-z_0-9]+(\[[A-Z_a-z0-9]+\])?)+; *$/) return code comment
    match(code, /^ +[a-z_0-9]+ /)
    type = substr(code, 1, RLENGTH)
    code = substr(code, RLENGTH + 1)
    sub(/; *$/, "", code)
    n = split(code, names, /, /)
    text = ""
    for (i = 1; i <= n; i++) text = text (i > 1 ? "\n" : "") type names[i] "; " comment
    return text
}

BEGIN { inside = 0; seen_file = 0; about = "" }

# --- the rest of a comment of several lines ---
inside {
    if (!is_open($0)) inside = 0
    if (above) about = about "\n" escaped($0)
    else print escaped($0)
    next
}

# --- lists ---
/^#define KN_[A-Z_]*_LIST\(X\)/ { list = $2; sub(/\(.*/, "", list); in_list = 1; print "/** A list of X(name, ..., text). */"; print; next }
in_list {
    if ($0 ~ /^ *X\(/) {
        entry = $0
        sub(/^ *X\(/, "", entry)
        sub(/ *\/\*.*/, "", entry)
        sub(/ *\\$/, "", entry)
        sub(/\)$/, "", entry)
        entries[list, ++counts[list]] = entry
    }
    if ($0 !~ /\\$/) in_list = 0
    print
    next
}
/^#define X\(/ {
    x_names = $0
    sub(/^#define X\(/, "", x_names)
    x_body = x_names
    sub(/\).*/, "", x_names)
    sub(/^[^)]*\) */, "", x_body)
    next
}
/^#undef X$/ { next }
/^ *KN_[A-Z_]*_LIST\(X\)$/ {
    list = $1
    sub(/\(.*/, "", list)
    for (i = 1; i <= counts[list]; i++) print expanded(entries[list, i])
    next
}

# --- comments ---
/^[ \t]*\/\* ---.*--- \*\/$/ { about = ""; print; next }
/^$/ { about = ""; print; next }
!/\/\*/ {
    describe($0)
    print
    statement($0)
    next
}
{
    at = index($0, "/*")
    code = substr($0, 1, at - 1)
    text = substr($0, at + 2)
    inside = is_open(text)
    above = 0
    if (in_macro || $0 ~ /\\$/) {
        print
        statement($0)
    } else if (!seen_file) {
        seen_file = 1
        print "/** @file\n *" escaped(text)
    } else if (code ~ /^[ \t]*$/) {
        above = 1
        about = "/**" escaped(text)
    } else if (code ~ /^#(if|else|endif|include|pragma)/) {
        print
    } else if (code ~ /\{ *$/) {
        print (about != "" ? about : "/**" escaped(text)) "\n" code
        about = ""
    } else {
        print each(code, "/**<" escaped(text))
        statement(code)
        about = ""
    }
}
