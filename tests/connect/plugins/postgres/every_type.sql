CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN price AS numeric(8,2);
CREATE TYPE pair AS (a int, b text);
CREATE TABLE everything (
    id bigserial PRIMARY KEY,
    b bool, i2 int2, i4 int4, i8 int8, o oid,
    n numeric, n12_4 numeric(12,4), n5 numeric(5), m money,
    t text, vc varchar(10), bc char(5), c "char", nm name,
    f4 float4, f8 float8, nan float8, by bytea,
    ts timestamp, ts0 timestamp(0), ts3 timestamp(3), tstz timestamptz, tstz0 timestamptz(0), tstz3 timestamptz(3),
    d date, tm time, tm3 time(3), tmtz timetz, iv interval,
    j json, jb jsonb, u uuid, e mood, dp positive, pr price, ip inet, ci cidr, ma macaddr,
    r4 int4range, bt bit(1), bt8 bit(8), vb varbit(12), tv tsvector, pt point, unknown pair,
    forever timestamp, long_ago date,
    a_i int[], a_t text[], a_n numeric(6,2)[], a_ts timestamp[], a_e mood[], a_u uuid[], a_b bool[], a_by bytea[],
    a_j jsonb[], a_f float8[], a_deep int[][], nothing text
);
-- rows
INSERT INTO everything VALUES (
    DEFAULT,
    true, -7, 123456, 9007199254740993, 4000000000,
    123.4500, -1234.5678, 12345, '-1234.56',
    E'héllo "q" \\ \nnew', 'varchar', 'ab', 'z', 'nämé',
    1.1, 1e300, 'NaN', '\xdeadbeef00',
    '2026-02-03 04:05:06.789012', '2026-02-03 04:05:06.7', '2026-02-03 04:05:06.789',
    '2026-02-03 04:05:06.789012+02', '2026-02-03 04:05:06+02', '2026-02-03 04:05:06.7+02',
    '2026-02-03', '04:05:06.789012', '04:05:06.789', '04:05:06.789012+02', '1 year 2 mons 3 days 04:05:06.789',
    '{"a": [1, 2]}', '{"b": null, "a": 1.50}', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'ok', 5, 12.30,
    '10.0.0.1/8', '10.0.0.0/8', '08:00:2b:01:02:03',
    '[1,5]', '1', '10110011', '101', 'a fat cat', '(1.5,2)', '(1,x)',
    'infinity', '0044-03-15 BC',
    '{1,NULL,3}', '{"a b","c\"d",NULL,"NULL",e}', '{1.5,2.25}', '{"2026-02-03 04:05:06.789012"}', '{sad,happy}',
    '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}', '{t,f}', '{"\\xdead"}', '{"{\"a\": 1}"}', '{1.5,NaN}',
    '{{1,2},{3,4}}', NULL
)
