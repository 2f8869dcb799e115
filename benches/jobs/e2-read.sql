-- Reads all columns of the table of E2: the number of rows, the sum of the numbers, of the whole numbers, the letters of the texts, the
-- dates. benches/files/peers.py has other engines compute the same.
SET 'execution.runtime-mode' = 'batch';

CREATE TABLE found (row_count BIGINT, numbers DOUBLE, whole DOUBLE, letters DOUBLE, dates DOUBLE)
WITH ('connector' = 'stdout', 'format' = 'csv');

INSERT INTO found
SELECT
  COUNT(*),
    SUM(actual) + SUM(predict) + SUM(n01) + SUM(n02) + SUM(n03) + SUM(n04) + SUM(n05) + SUM(n06) + SUM(n07) + SUM(n08) + SUM(n09)
    + SUM(n10) + SUM(n11) + SUM(n12) + SUM(n13) + SUM(n14) + SUM(n15) + SUM(n16) + SUM(n17) + SUM(n18) + SUM(n19) + SUM(n20) + SUM(n21)
    + SUM(n22) + SUM(n23) + SUM(n24) + SUM(n25),
  CAST(
    SUM(id) + SUM(`quarter`) + SUM(`year`) + SUM(n26) + SUM(n27) + SUM(n28) + SUM(n29) + SUM(n30) + SUM(n31) + SUM(n32) + SUM(n33)
    + SUM(n34) + SUM(n35) + SUM(n36) + SUM(n37) + SUM(n38) + SUM(n39) + SUM(n40) + SUM(n41) + SUM(n42) + SUM(n43) + SUM(n44) + SUM(n45)
    + SUM(n46) + SUM(n47) + SUM(n48) + SUM(n49) + SUM(n50)
    AS DOUBLE),
  CAST(
    SUM(CHAR_LENGTH(country)) + SUM(CHAR_LENGTH(state)) + SUM(CHAR_LENGTH(county)) + SUM(CHAR_LENGTH(region))
    + SUM(CHAR_LENGTH(division)) + SUM(CHAR_LENGTH(prodtype)) + SUM(CHAR_LENGTH(product)) + SUM(CHAR_LENGTH(t01))
    + SUM(CHAR_LENGTH(t02)) + SUM(CHAR_LENGTH(t03)) + SUM(CHAR_LENGTH(t04)) + SUM(CHAR_LENGTH(t05)) + SUM(CHAR_LENGTH(t06))
    + SUM(CHAR_LENGTH(t07)) + SUM(CHAR_LENGTH(t08)) + SUM(CHAR_LENGTH(t09)) + SUM(CHAR_LENGTH(t10)) + SUM(CHAR_LENGTH(t11))
    + SUM(CHAR_LENGTH(t12)) + SUM(CHAR_LENGTH(t13)) + SUM(CHAR_LENGTH(t14)) + SUM(CHAR_LENGTH(t15)) + SUM(CHAR_LENGTH(t16))
    + SUM(CHAR_LENGTH(t17)) + SUM(CHAR_LENGTH(t18)) + SUM(CHAR_LENGTH(t19)) + SUM(CHAR_LENGTH(t20)) + SUM(CHAR_LENGTH(t21))
    + SUM(CHAR_LENGTH(t22)) + SUM(CHAR_LENGTH(t23)) + SUM(CHAR_LENGTH(t24)) + SUM(CHAR_LENGTH(t25)) + SUM(CHAR_LENGTH(t26))
    + SUM(CHAR_LENGTH(t27)) + SUM(CHAR_LENGTH(t28)) + SUM(CHAR_LENGTH(t29)) + SUM(CHAR_LENGTH(t30)) + SUM(CHAR_LENGTH(t31))
    + SUM(CHAR_LENGTH(t32)) + SUM(CHAR_LENGTH(t33)) + SUM(CHAR_LENGTH(t34)) + SUM(CHAR_LENGTH(t35)) + SUM(CHAR_LENGTH(t36))
    + SUM(CHAR_LENGTH(t37)) + SUM(CHAR_LENGTH(t38)) + SUM(CHAR_LENGTH(t39)) + SUM(CHAR_LENGTH(t40)) + SUM(CHAR_LENGTH(t41))
    + SUM(CHAR_LENGTH(t42)) + SUM(CHAR_LENGTH(t43)) + SUM(CHAR_LENGTH(t44)) + SUM(CHAR_LENGTH(t45)) + SUM(CHAR_LENGTH(t46))
    + SUM(CHAR_LENGTH(t47)) + SUM(CHAR_LENGTH(t48)) + SUM(CHAR_LENGTH(t49)) + SUM(CHAR_LENGTH(t50))
    AS DOUBLE),
  CAST(COUNT(`month`) AS DOUBLE)
FROM '${FILES}';
