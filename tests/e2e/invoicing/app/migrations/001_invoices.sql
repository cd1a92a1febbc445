CREATE TABLE invoices (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    amount numeric(12, 2) NOT NULL CHECK (amount > 0),
    paid boolean NOT NULL DEFAULT false
);
