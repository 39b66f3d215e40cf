package waitdb

import (
	"context"
	"slices"
)

// Demand is how many permits all waiting jobs want of each meter, as Redis has counted it.
func (db *DB) DemandByMeter(ctx context.Context) (map[string]string, error) {
	demand := map[string]string{}
	scan := db.rdb.HScan(ctx, db.prefix+"demand", 0, "", 1000).Iterator()
	for scan.Next(ctx) {
		meter := scan.Val()
		scan.Next(ctx)
		demand[meter] = scan.Val()
	}
	return demand, scan.Err()
}

// A Correction says how many permits of a meter the waiting jobs want, if that differs from what
// was read.
type Correction struct {
	Meter, Read string
	Wanted      int64
}

// CorrectDemand corrects how many permits of meters are wanted. It leaves a meter alone if the
// number has changed since it was read.
func (db *DB) RepairDemand(ctx context.Context, process string, all []Correction) error {
	for some := range slices.Chunk(all, mendPage) {
		args := []any{process}
		for _, c := range some {
			args = append(args, c.Meter, c.Read, c.Wanted)
		}
		if err := db.run(ctx, correctDemandScript, args...).Err(); err != nil {
			return err
		}
	}
	return nil
}
