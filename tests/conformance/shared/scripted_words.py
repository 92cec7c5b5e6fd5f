"""What every scripted model says to words that need no tool, whatever its framework."""


def plain_answer(words, before):
    """Texts and pauses; an exception is raised. `before`: what the user said in earlier turns."""
    match words.split():
        case ["error", *_]:
            return [RuntimeError("the model is away")]
        case ["fail", *_]:
            return ["Some words ", RuntimeError("the model went away")]
        case ["long", count, milliseconds, *_]:
            return [part for n in range(int(count)) for part in (int(milliseconds) / 1000, f"{n} ")]
        case ["history", *_]:
            return ["Before, you said: ", repr(before)]
        case ["unicode", *_]:
            return ["žluťoučký 🦊 ", "line\u2028paragraph\u2029next\u0085end\r\n"]
        case ["empty", *_]:
            return []
    return ["You said: ", *(word + " " for word in words.split())]
