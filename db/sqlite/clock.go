package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"

	"modernc.org/sqlite"
)

// connector opens connections of a driver that belongs to one store: functions that are registered with it affect no
// other store, and no driver name is registered in database/sql.
type connector struct {
	driver *sqlite.Driver
	dsn    string
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.driver.Open(c.dsn)
}

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return c.driver }

// newDriver returns a driver whose connections have the functions ledger_now() and ledger_at(at, after_micros).
func newDriver(now func() time.Time) (*sqlite.Driver, error) {
	d := &sqlite.Driver{}
	err := d.RegisterScalarFunction("ledger_now", 0,
		func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
			return now().UnixMicro(), nil
		})
	if err != nil {
		return nil, err
	}
	err = d.RegisterScalarFunction("ledger_at", 2,
		func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			switch after := args[1].(type) {
			case nil:
				return args[0], nil
			case int64:
				return now().UnixMicro() + after, nil
			default:
				return nil, fmt.Errorf("ledger_at: %T is not a number of microseconds", after)
			}
		})
	return d, err
}
