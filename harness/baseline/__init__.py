"""What a later trial is compared with: a few figures of a trial, kept as a small file that people review.

    take.py     a judged trial -> its figures
    pooling.py  several trials of one situation -> one: how much trials differ becomes part of the intervals
    model.py    the document: read, checked, written the same every time
    compare.py  two of them -> what changed, what did not, and what cannot be told
    view.py     that, for people and for machines

Nothing here drives or judges a trial, reads a clock, or opens a socket.
"""
