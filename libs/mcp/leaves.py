"""What is inside of a group of errors."""


def leaves(error: BaseException) -> list[BaseException]:
    """The innermost errors; groups only wrap them."""
    found: list[BaseException] = []
    todo = [error]
    while todo:
        item = todo.pop()
        if isinstance(item, BaseExceptionGroup):
            todo.extend(item.exceptions)
        else:
            found.append(item)
    return found
