package waitdb

import (
	"context"
	"slices"
)

// Demand is how many permits all waiting jobs want of each meter, as Redis has counted it.
func (db *DB) Demand(ctx context.Context) (map[string]string, error) {
	demand := map[string]string{}
	scan := db.rdb.HScan(ctx, db.prefix+"demand", 0, "", 1000).Iterator()
	for scan.Next(ctx) {
		meter := scan.Val()
		scan.Next(ctx)
		demand[meter] = scan.Val()
	}
	return demand, scan.Err()
}

// A Correction is a meter of which another number of permits is wanted than was read.
type Correction struct {
	Meter, Read string
	Wanted      int64
}

// CorrectDemand corrects how many permits are wanted of meters, but for those of which another
// number is wanted by now.
func (db *DB) CorrectDemand(ctx context.Context, process string, all []Correction) error {
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
