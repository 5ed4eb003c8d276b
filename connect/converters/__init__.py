"""Between values and the bytes of a record: one converter per file"""
