CREATE TABLE public.orders (
    id          bigserial PRIMARY KEY,
    customer    text NOT NULL,
    quantity    integer NOT NULL,
    amount      numeric(12, 2) NOT NULL,
    rating      double precision,
    paid        boolean NOT NULL DEFAULT false,
    placed_at   timestamptz NOT NULL DEFAULT now(),
    changed_at  timestamp NOT NULL DEFAULT now(),
    ship_on     date,
    reference   uuid NOT NULL DEFAULT gen_random_uuid(),
    details     jsonb NOT NULL DEFAULT '{}',
    tags        text[] NOT NULL DEFAULT '{}',
    signature   bytea
);

INSERT INTO public.orders (customer, quantity, amount) VALUES ('Ada', 2, 7.50), ('Bo', 1, 12.00);
